"""Checks of a network of another package before it is trained: that it can be exported, and that it ignores padding."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

from seqclf.data.encoding.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.onnx_export import example_inputs, export_onnx
from seqclf.models.parity_grid import TOLERANCE, grid, logit_error

REMEDY = "give the module that differs an onnx_form (see docs/extending.md), or set export=false"
SEED = 0
# One sequence fills the batch, one has a single token, and none reaches the padded width.
LENGTHS, WIDTH = (11, 1, 5, 8), 14


def check_exportable(network: nn.Module, fields: Sequence[FieldSpec], key: str) -> None:
    """Raise InputError, which begins with `key`, unless `network` exports to ONNX with the same logits.

    Both are compared on the grid of shapes on which a bundle is compared.
    """
    with tempfile.TemporaryDirectory(prefix="seqclf-export-") as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(network, fields, path, key)
        session = _open(path, key)
        generator = np.random.default_rng(SEED)
        for cell, lengths, time in grid(generator):
            inputs = example_inputs(fields, lengths, time, generator)
            shape = f"{len(lengths)} sequences of up to {time} tokens ({cell})"
            try:
                logits = session.run(["logits"], inputs)[0]
            except Exception as error:  # ONNX Runtime's exceptions have no common base class
                raise InputError(f"{key}: the exported network fails on {shape}: {_line(error)}; {REMEDY}") from error
            expected = _logits(network, inputs, key)
            if logits.shape != expected.shape or logit_error(logits, expected) > TOLERANCE:
                raise InputError(f"{key}: the exported network has other logits on {shape}; {REMEDY}")


def padding_error(network: nn.Module, fields: Sequence[FieldSpec], key: str = "model") -> float:
    """Return how far the logits of a sequence depend on padding and batch mates: 0 up to rounding, if they do not.

    It is the largest difference of a logit of a sequence in a padded batch from that of the same sequence alone, over
    the largest logit where that exceeds 1. Padding holds random values. Raises InputError, which begins with `key`, if
    the network fails on such a batch.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> padding_error(Mean(), [{"name": "x", "kind": "number", "width": 2}]) > 0.1
    True
    """
    lengths = np.array(LENGTHS)
    inputs = example_inputs(fields, lengths, WIDTH, np.random.default_rng(SEED))
    together = _logits(network, inputs, key)
    errors = []
    for row, length in enumerate(lengths):
        alone = {name: values[row : row + 1] for name, values in inputs.items()}
        alone = {name: values if name == "lengths" else values[:, :length] for name, values in alone.items()}
        errors.append(logit_error(_logits(network, alone, key)[0], together[row]))
    return max(errors)


def _logits(network: nn.Module, inputs: dict[str, np.ndarray], key: str) -> np.ndarray:
    """Run a network in evaluation mode, and leave it in the mode that it had."""
    lengths = inputs["lengths"]
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    modes = {module: module.training for module in network.modules()}
    try:
        with torch.no_grad():
            return network.eval()(fields, torch.from_numpy(lengths), lengths).numpy()
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
        shape = f"{len(lengths)} sequences of {', '.join(map(str, lengths))} tokens"
        raise InputError(f"{key}: fails on {shape} ({type(error).__name__}: {_line(error)})") from error
    finally:
        for module, training in modes.items():
            module.training = training


def _open(path: Path, key: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a failure becomes the error line, so nothing else is printed
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(f"{key}: the exported network cannot be loaded: {_line(error)}; {REMEDY}") from error


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
