"""Probe of a network with a padded batch: does padding change its logits, and which of its modules reads the padding?

Each sequence of the batch is also run alone, without padding. A network that ignores padding gives equal logits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.errors import InputError, first_line
from seqclf.models.onnx.export import example_inputs
from seqclf.models.onnx.obstacles import USE_MASKED
from seqclf.models.parity_grid import TOLERANCE, logit_error
from seqclf.training.debugging.module_hooks import ModuleHooks, leaves, module_title

Inputs = Mapping[str, np.ndarray]  # dict name of a field → values, and `lengths` → lengths (B,)
CallId = tuple[str, int]  # name of a module, and number of an earlier call of this module

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


def explain_padding_error(
    network: nn.Module, fields: Sequence[FieldSpec], key: str, shortest: int, error: float
) -> InputError:
    """Return the error of a network that reads padding. The error names the module, if the module can be told.

    Raises InputError if the network is random in evaluation mode, because then its logits always change.
    """
    batch = padded_batch(fields, shortest)
    logits, again = (_array(run_network(network, batch, key)) for _ in range(2))
    if np.isfinite(error) and logit_error(logits, again) > MAX_LOGIT_ERROR:
        raise InputError(
            key,
            "the logits of the same batch differ between two runs in evaluation mode",
            "use nn.Dropout, or F.dropout with training=self.training",
        )
    name = _padding_source(network, batch, fields, logits, key)
    module = None if name is None else network.get_submodule(name)
    named = "" if name is None or module is None else f"{module_title(name, module)} reads padding: "
    problem = (
        f"{named}the logits of a sequence change by up to {error:.2g} with its padding and batch mates, so its "
        "prediction depends on the rows that are scored with it"
    )
    return InputError(key, problem, USE_MASKED if isinstance(module, nn.RNNBase) else NO_PADDING)


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


class _Difference(NamedTuple):
    """An output of a module that differs between a padded batch and a sequence alone.

    `leaf`: number of the tensor among the outputs. `part`: slices of the sequence in the padded batch. `alone`: values
    of the sequence alone, of the shape of this part.
    """

    leaf: int
    part: tuple[slice, ...]
    alone: Tensor


def _padding_source(
    network: nn.Module, batch: Inputs, fields: Sequence[FieldSpec], logits: np.ndarray, key: str
) -> str | None:
    """Return the name of the first module inside `network` that reads padding or other sequences, if it can be told.

    Modules are tried in the order in which they end, so a layer comes before the module that contains the layer. A
    module is the source under three conditions: its inputs at the tokens of each sequence are the same in the padded
    batch and alone, its outputs differ, and the logits change if its outputs in the padded batch are replaced by its
    outputs alone. The last condition skips outputs that nothing uses, such as the final state of a recurrent layer.
    """
    rows = _rows_alone(batch, fields)
    try:
        together = _record(network, batch, key)
        separate = [_record(network, row, key) for row in rows]
    except (InputError, RuntimeError):  # a hook may fail in a module that is compiled or scripted
        return None
    lengths = [int(row["lengths"][0]) for row in rows]
    for call_id, (inputs, outputs) in together.items():
        # A module in a loop over tokens runs more often on longer inputs.
        if not call_id[0] or not all(call_id in calls for calls in separate):
            continue
        if _differences(inputs, [calls[call_id][0] for calls in separate], lengths):
            continue
        differences = _differences(outputs, [calls[call_id][1] for calls in separate], lengths)
        if differences and _matters(network, batch, key, call_id, differences, logits):
            return call_id[0]
    return None


def _record(network: nn.Module, inputs: Inputs, key: str) -> dict[CallId, tuple[list[Tensor], list[Tensor]]]:
    """Run the network. Return dict call of a module → copies of its inputs and outputs, in the order of their ends."""
    calls = {}

    def keep(call_id: CallId, output: Any, taken: Any) -> None:
        calls[call_id] = [leaf.clone() for leaf in _tensors(taken)], [leaf.clone() for leaf in _tensors(output)]

    with _outputs_visited(network, keep):
        run_network(network, inputs, key)
    return calls


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor) and not leaf.is_nested]


@contextmanager
def _outputs_visited(network: nn.Module, visit: Callable[[CallId, Any, Any], None]) -> Iterator[None]:
    """Inside the block, call `visit(call_id, output, inputs)` after each call of a module."""
    counts: Counter[str] = Counter()

    def count(name: str, role: str, value: Any, inputs: Any) -> None:
        if role == "output":
            visit((name, counts[name]), value, inputs)
            counts[name] += 1

    hooks = ModuleHooks(network, count)
    try:
        yield
    finally:
        hooks.remove()


def _differences(together: list[Tensor], alone: list[list[Tensor]], lengths: list[int]) -> list[_Difference]:
    """Return the parts of tensors `together` that differ from the tensors of the sequences `alone`."""
    found = []
    for row, (tensors, length) in enumerate(zip(alone, lengths, strict=True)):
        for leaf, (batch, single) in enumerate(zip(together, tensors, strict=False)):
            # The batch axis has the size `rows` in the batch and 1 alone, at any position: outputs (B, T, H), states
            # (layers, B, H). An axis whose size differs otherwise is a time axis.
            sizes = list(zip(batch.shape, single.shape, strict=False))
            rows = len(alone), 1
            if batch.dim() != single.dim() or rows not in sizes or any(size > both for both, size in sizes):
                continue
            own = [slice(size if size == both else min(size, length)) for both, size in sizes]
            values = single[tuple(own)]
            own[sizes.index(rows)] = slice(row, row + 1)
            if _differ(batch[tuple(own)], values):
                found.append(_Difference(leaf, tuple(own), values))
    return found


def _differ(batch: Tensor, single: Tensor) -> bool:
    """Return True if two tensors differ by more than rounding errors. Equal NaN and equal infinite values are equal."""
    if not single.is_floating_point() or not single.numel():
        return not torch.equal(batch, single)
    scale = max(1.0, float(single.nan_to_num(0, 0, 0).abs().max()))
    return not torch.allclose(batch, single, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True)


def _matters(
    network: nn.Module, batch: Inputs, key: str, call_id: CallId, differences: list[_Difference], logits: np.ndarray
) -> bool:
    """Return True if the logits of the batch change when the outputs of a call are replaced by the outputs alone."""

    def replace(visited: CallId, output: Any, inputs: Any) -> None:
        if visited == call_id:
            tensors = _tensors(output)
            for difference in differences:
                tensors[difference.leaf][difference.part] = difference.alone

    try:
        with _outputs_visited(network, replace):
            return logit_error(_array(run_network(network, batch, key)), logits) > TOLERANCE
    except (InputError, RuntimeError):  # an output that cannot be changed in place, such as an expanded tensor
        return True
