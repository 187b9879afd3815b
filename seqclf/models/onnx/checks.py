"""Checks of an export: batches on which it must agree with PyTorch, and errors that name the module in its way.

Imports PyTorch only to explain a failure, because a bundle is checked without it.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from seqclf.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import nn

EMBEDDING = "embedding"  # output of a model (B, D), see `SequenceNetwork.embedding_layers`
TOLERANCE = 1e-5  # maximum logit error; PyTorch and ONNX Runtime add float32 numbers in different orders
# A size of 1 is included, because the export may have fixed or removed an axis of size 1.
BATCHES = (1, 2, 5, 16)
TIMES = (1, 2, 13, 48)


def grid(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield a name, the lengths (B,) and the padded length T of batches: all lengths T, all below, or spread to T."""
    for batch, time in itertools.product(BATCHES, TIMES):
        patterns = {"full": np.full(batch, time)}
        if time > 1:
            patterns["short"] = np.full(batch, (time + 1) // 2)
        if time > 1 and batch > 1:
            spread = np.linspace(1, time, batch).round().astype(np.int64)
            patterns["different"] = generator.permutation(spread)
        for name, lengths in patterns.items():
            yield f"B{batch}_T{time}_{name}", lengths, time


def logit_error(logits: np.ndarray, expected: np.ndarray) -> float:
    """Return the error max |logits - expected| / max(1, max |expected|), or inf if the error is not finite."""
    error = np.abs(logits - expected).max() / max(1.0, np.abs(expected).max())
    # Return inf instead of NaN. Every comparison with NaN is False, so the test `error > tolerance` would accept NaN.
    return float(error) if np.isfinite(error) else float("inf")


REMEDY = (
    "compute with tensors (torch.where instead of if, tensor.shape[0] instead of len(tensor), 0.5 instead of "
    "torch.tensor(0.5), a RecurrentCell instead of a loop over tokens), give that module an onnx_form (see "
    "docs/extending.md), or set export=false"
)
# Recurrent layers that ignore padding and that are exported
USE_MASKED = "use seqclf.extend.MaskedLSTM or MaskedGRU, called as layer(tokens, lengths)"
WRAPPER = "classifier."  # prefix of all module names in the exported network


def recurrent_obstacle(path: str, module: nn.Module) -> InputError:
    """Return the error of an `nn.LSTM`, `nn.GRU` or `nn.RNN`."""
    problem = f"{_title(path, module)} fixes the number of tokens, with packed tokens too"
    return InputError(None, problem, f"{USE_MASKED}, or set export=false")


def explain_failure(network: nn.Module, error: BaseException) -> InputError:
    """Return an error with the innermost module that failed and the exporter's first line, or its InputError."""
    import torch
    from torch import nn

    names = {id(module): name for name, module in network.named_modules()}
    location, cause = "the network", error
    following: BaseException | None = error
    while following is not None:
        cause = following
        if isinstance(cause, InputError):
            return cause
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            module, node = frame.f_locals.get("self"), frame.f_locals.get("node")
            if isinstance(module, nn.Module) and names.get(id(module)):
                location = _title(names[id(module)], module)
            # The exporter converts the nodes of a graph to ONNX. A graph node names the module that created it.
            if isinstance(node, torch.fx.Node) and (stack := node.meta.get("nn_module_stack")):
                location = _title(*list(stack.values())[-1])
        following = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return InputError(None, f"{location} fails ({type(cause).__name__}: {first_line(cause)})", REMEDY)


def _title(path: str, kind: Any) -> str:
    name = kind if isinstance(kind, str) else (kind if isinstance(kind, type) else type(kind)).__name__
    inner_path = f"{path}.".removeprefix(WRAPPER).removesuffix(".")
    return f"{inner_path or 'the network'} ({name.rpartition('.')[2]})"
