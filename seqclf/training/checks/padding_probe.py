"""Probe of a network with a padded batch: does padding change its logits?

Each sequence of the batch is also run alone, without padding. A network that ignores padding gives equal logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.errors import InputError, first_line
from seqclf.models.onnx.export import example_inputs
from seqclf.models.onnx.obstacles import USE_MASKED
from seqclf.models.parity_grid import logit_error

Inputs = Mapping[str, np.ndarray]  # dict name of a field → values, and `lengths` → lengths (B,)

MAX_LOGIT_ERROR = 1e-4  # largest accepted `padding_error`; rounding errors are a hundred times smaller
NO_PADDING = "let it read no token beyond lengths"
SEED = 0
# Lengths of the sequences in the batch, and the padded width of the batch. The length of the shortest sequence of the
# data is added to all these numbers. Every sequence is shorter than the padded width.
MORE_TOKENS, PADDED_WIDTH = (10, 0, 4, 7), 13
NOT_FINITE = (
    "give one for each length from 1: keep an output, as by (lengths + 1) // 2, and divide by no length less one"
)


def padding_error(network: nn.Module, fields: Sequence[FieldSpec], key: str = "model", shortest: int = 1) -> float:
    """Return the largest change of a logit that padding and the other sequences of a batch cause.

    The change is the difference between a logit of a sequence in a padded batch and the same logit of the sequence
    alone. The change is divided by the largest logit if that logit exceeds 1. If a network ignores padding, the result
    is 0 except for rounding errors. The padding of the test batch holds random values. `shortest`: number of tokens of
    the shortest sequence in the test batch. `key`: config key at the start of errors. Raises InputError if the network
    fails on the test batch, or if the logits of a sequence alone are not finite.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> padding_error(Mean(), [{"name": "x", "kind": "number", "width": 2}]) > 0.1
    True
    """
    batch = padded_batch(fields, shortest)
    together = _array(run_network(network, batch, key))
    alone = [finite_logits(network, row, key)[0] for row in _rows_alone(batch, fields)]
    return max(map(logit_error, alone, together))


def require_padding_ignored(network: nn.Module, fields: Sequence[FieldSpec], key: str, shortest: int = 1) -> None:
    """Raise InputError if a network reads padding, or is random in evaluation mode, which changes its logits too.

    `key`, `shortest`: see `padding_error`.
    """
    error = padding_error(network, fields, key, shortest)
    if error <= MAX_LOGIT_ERROR:
        return
    batch = padded_batch(fields, shortest)
    logits, again = (_array(run_network(network, batch, key)) for _ in range(2))
    if np.isfinite(error) and logit_error(logits, again) > MAX_LOGIT_ERROR:
        raise InputError(
            key,
            "the logits of the same batch differ between two runs in evaluation mode",
            "use nn.Dropout, or F.dropout with training=self.training",
        )
    plain = {type(module).__name__ for module in network.modules() if isinstance(module, nn.RNNBase)}
    problem = (
        f"the logits of a sequence change by up to {error:.2g} with its padding and batch mates, so its prediction "
        "depends on the rows that are scored with it"
    )
    raise InputError(key, problem, f"{NO_PADDING}; for nn.{min(plain)}, {USE_MASKED}" if plain else NO_PADDING)


def padded_batch(fields: Sequence[FieldSpec], shortest: int) -> dict[str, np.ndarray]:
    """Return random inputs of a padded batch, whose shortest sequence has `shortest` tokens."""
    lengths = shortest + np.array(MORE_TOKENS)
    return example_inputs(fields, lengths, shortest + PADDED_WIDTH, np.random.default_rng(SEED))


def run_network(network: nn.Module, inputs: Inputs, key: str) -> Any:
    """Run a network in evaluation mode, and then restore the training or evaluation mode of each module."""
    lengths = inputs["lengths"]
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    modes = {module: module.training for module in network.modules()}
    try:
        with torch.no_grad():
            return network.eval()(fields, torch.from_numpy(lengths), lengths)
    except InputError:
        raise
    except Exception as error:  # third-party code may raise any exception
        shape = f"{len(lengths)} sequences of {', '.join(map(str, lengths))} tokens"
        raise InputError(key, f"fails on {shape} ({type(error).__name__}: {first_line(error)})") from error
    finally:
        for module, training in modes.items():
            module.training = training


def finite_logits(network: nn.Module, inputs: Inputs, key: str) -> np.ndarray:
    """Return the logits (B, C) of a network. Raises InputError if they are not finite."""
    logits = _array(run_network(network, inputs, key))
    broken = inputs["lengths"][~np.isfinite(logits).all(axis=-1)]
    if len(broken):
        length = f"{broken[0]} token{'s' if broken[0] > 1 else ''}"
        raise InputError(key, f"the logits of a sequence of {length} are not finite", NOT_FINITE)
    return logits


def _array(logits: Tensor) -> np.ndarray:
    return logits.float().numpy()  # NumPy has no bfloat16


def _rows_alone(batch: Inputs, fields: Sequence[FieldSpec]) -> list[Inputs]:
    """Return the inputs of each sequence of a batch without its padding."""
    without_tokens = {"lengths", *(spec["name"] for spec in static_specs(fields))}
    return [
        {
            name: values[row : row + 1] if name in without_tokens else values[row : row + 1, :length]
            for name, values in batch.items()
        }
        for row, length in enumerate(batch["lengths"])
    ]
