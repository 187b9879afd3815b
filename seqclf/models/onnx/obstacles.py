"""Error messages for a failed ONNX export. A message names the module that cannot be exported.

PyTorch's exporter reports its own long stack trace. The message of this module has one line, with the innermost module
of the network that failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from seqclf.errors import InputError

REMEDY = "give that module an onnx_form (see docs/extending.md), or set export=false"
# What makes an axis constant, and what to write instead, for each axis.
FIXED_AXES = {
    "sequences": (
        "fixes the number of sequences, as a Python loop over them, len() or .tolist() does",
        "write tensor.shape[0] for len(tensor), compute all sequences at once",
    ),
    "tokens": (
        "fixes the number of tokens, as a Python loop over them or len() does",
        "write tensor.shape[0] for len(tensor), a RecurrentCell for a loop",
    ),
}
WRITE_TENSORS = "write torch.where instead of if, tokens.shape[1] instead of int(lengths.max())"
# Parts of PyTorch's error texts → what the code of the network does, and what to write instead
KNOWN_FAILURES = {
    "data-dependent": ("depends on the values of tensors, as by an if or int() of a tensor", WRITE_TENSORS),
    ".numpy() is not supported": ("calls .numpy() of a tensor", "compute with tensors"),
    "NoneType": ("uses host_lengths, which is None during the export", "compute with lengths, a tensor"),
}
EXPORT_FALSE = "or set export=false"
# Part of PyTorch's error text for a constant inside a `Scan`. The error comes after the trace of the step.
CONSTANT_IN_STEP = "FunctionalTensor"
CONSTANT = "makes a tensor of a Python number, as torch.tensor(0.5) or x[:, 0] = 0.5 does"
WRITE_NUMBERS = "write 0.5 for torch.tensor(0.5), torch.where(mask, 0.5, x) for x[:, 0] = 0.5"
# Recurrent layers that ignore padding and that are exported
USE_MASKED = "use seqclf.extend.MaskedLSTM or MaskedGRU, called as layer(tokens, lengths)"
WRAPPER = "classifier."  # prefix of all module names in the exported network


def recurrent_obstacle(path: str, module: nn.Module) -> InputError:
    """Return the error of an `nn.LSTM`, `nn.GRU` or `nn.RNN`. `path`: path of the module in the exported network."""
    problem = f"{describe(path, module)} fixes the number of tokens, with packed tokens too"
    return InputError(None, problem, f"{USE_MASKED}, {EXPORT_FALSE}")


def fixed_axis_obstacle(axis: str) -> InputError:
    """Return the error of a network that makes an axis constant. `axis`: "sequences" or "tokens"."""
    problem, remedy = FIXED_AXES[axis]
    return InputError(None, f"the network {problem}", f"{remedy}, {REMEDY}")


def explain_failure(network: nn.Module, error: BaseException) -> InputError:
    """Return an error with the module that the exporter failed to convert, the reason and a remedy."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, InputError):
            return cause
    module, location = _innermost_module(network, causes)
    line = next((line.strip() for line in str(causes[-1]).splitlines() if line.strip()), "")
    if CONSTANT_IN_STEP in line:
        name = _step_inside(module) or f"a step of {location}"
        return InputError(None, f"{name} {CONSTANT}", f"{WRITE_NUMBERS}, {EXPORT_FALSE}")
    for part, (problem, remedy) in KNOWN_FAILURES.items():
        if part in line:
            return InputError(None, f"{location} {problem}", f"{remedy}, {REMEDY}")
    kind = type(causes[-1]).__name__
    return InputError(None, f"{location} fails ({kind}: {line})" if line else f"{location} fails ({kind})", REMEDY)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _step_inside(module: nn.Module | None) -> str | None:
    """Return `step of` the cells inside a module. A `Scan` belongs to the encoder, and its step to a cell."""
    cells = [] if module is None else [part for part in module.modules() if callable(getattr(part, "step", None))]
    return f"step of {', '.join(dict.fromkeys(type(cell).__name__ for cell in cells))}" if cells else None


def _innermost_module(network: nn.Module, causes: list[BaseException]) -> tuple[nn.Module | None, str]:
    """Return the innermost module of `network` that failed, and its description, or None and `the network`."""
    modules = dict(network.named_modules())
    names = {id(module): name for name, module in modules.items()}
    found, location = None, "the network"
    for cause in causes:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and names.get(id(module)):
                found, location = module, describe(names[id(module)], module)
            node = frame.f_locals.get("node")
            # The exporter converts the nodes of a graph to ONNX. The metadata of a graph node names the module that
            # created the node.
            if isinstance(node, torch.fx.Node) and (stack := node.meta.get("nn_module_stack")):
                path, kind = list(stack.values())[-1]
                found, location = modules.get(path), describe(path, kind)
    return found, location


def describe(path: str, kind: Any) -> str:
    """Return the path and the class name of a module as text, such as `encoder.blocks.0 (Block)`.

    `path`: path of the module in the exported network. `kind`: the module, its class, or the dotted name of its class.
    """
    name = kind if isinstance(kind, str) else (kind if isinstance(kind, type) else type(kind)).__name__
    inner_path = f"{path}.".removeprefix(WRAPPER).removesuffix(".")
    return f"{inner_path or 'the network'} ({name.rpartition('.')[2]})"
