"""Find the module of a network that reads padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqclf.errors import InputError
from seqclf.models.parity_grid import TOLERANCE, logit_error
from seqclf.training.debugging.module_hooks import ModuleHooks, leaves, module_title

Inputs = Mapping[str, np.ndarray]  # dict name of a field → values, and `lengths` → lengths (B,)
Slices = tuple[slice, ...]
CallId = tuple[str, int]  # name of a module, and number of an earlier call of this module


class PaddingSource(NamedTuple):
    """A module that reads padding. `title`: name of the module followed by its class."""

    title: str
    module: nn.Module


class _Call(NamedTuple):
    """Copies of the tensors that a module took and returned in one call."""

    inputs: list[Tensor]
    outputs: list[Tensor]


class _Difference(NamedTuple):
    """An output that differs between a padded batch and a sequence alone.

    `leaf`: number of the tensor among the outputs of the module. `part`: slices of the sequence in the padded batch.
    `alone`: values of the sequence alone, of the shape of this part.
    """

    leaf: int
    part: Slices
    alone: Tensor


def find_padding_source(
    network: nn.Module, batch: Inputs, rows: Sequence[Inputs], run: Callable[[Inputs], np.ndarray]
) -> PaddingSource | None:
    """Return the first module inside `network` that reads padding or other sequences of its batch.

    Modules are tried in the order in which they end, so a layer comes before the module that contains the layer. A
    module is the source under three conditions: its inputs at the tokens of each sequence are the same in the padded
    batch and alone, its outputs differ, and the logits change if its outputs in the padded batch are replaced by its
    outputs alone. The last condition skips outputs that nothing uses, such as the final state of a recurrent layer.

    Args:
        network: network whose logits depend on padding.
        batch: inputs of a padded batch of B sequences.
        rows: inputs of each of these sequences alone, without padding.
        run: runs the network on inputs and returns logits (B, C) or (1, C).

    Returns:
        The module, or None if no module inside the network can be told. Modules that run more often on longer inputs,
        such as a cell in a loop over tokens, are not compared.
    """
    try:
        together, logits = _record(network, batch, run)
        separate = [_record(network, row, run)[0] for row in rows]
    except (InputError, RuntimeError):  # a hook may fail in a module that is compiled or scripted
        return None
    counts = [Counter(name for name, _ in calls) for calls in (together, *separate)]
    lengths = [int(row["lengths"][0]) for row in rows]
    for call_id, call in together.items():
        name = call_id[0]
        if not name or len({count[name] for count in counts}) > 1:
            continue
        alone = [calls[call_id] for calls in separate]
        if _differences(call.inputs, [other.inputs for other in alone], lengths):
            continue
        differences = _differences(call.outputs, [other.outputs for other in alone], lengths)
        if differences and _matters(network, batch, run, call_id, differences, logits):
            module = network.get_submodule(name)
            return PaddingSource(module_title(name, module), module)
    return None


def _record(
    network: nn.Module, inputs: Inputs, run: Callable[[Inputs], np.ndarray]
) -> tuple[dict[CallId, _Call], np.ndarray]:
    """Run the network. Return its calls of modules, in the order in which they end, and the logits."""
    calls: dict[CallId, _Call] = {}

    def keep(call_id: CallId, output: Any, taken: Any) -> None:
        outputs = [leaf.clone() for leaf in leaves(output) if isinstance(leaf, Tensor)]
        calls[call_id] = _Call([_padded(leaf).clone() for leaf in leaves(taken)], outputs)

    with _outputs_visited(network, keep):
        return calls, run(inputs)


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


def _padded(leaf: Tensor | PackedSequence) -> Tensor:
    return pad_packed_sequence(leaf, batch_first=True)[0] if isinstance(leaf, PackedSequence) else leaf


def _differences(together: list[Tensor], alone: list[list[Tensor]], lengths: list[int]) -> list[_Difference]:
    """Return the parts of tensors `together` that differ from the tensors of the sequences `alone`."""
    found = []
    for row, tensors in enumerate(alone):
        if len(tensors) != len(together):
            continue
        for leaf, (batch, single) in enumerate(zip(together, tensors, strict=True)):
            parts = list(_parts(batch, single, len(alone), row, lengths[row]))
            # If several axes may be the batch axis, the tensors differ only if they differ along each of these axes.
            if parts and all(_differ(batch[part], single[own]) for part, own in parts):
                part, own = parts[0]
                found.append(_Difference(leaf, part, single[own]))
    return found


def _parts(batch: Tensor, single: Tensor, rows: int, row: int, length: int) -> Iterator[tuple[Slices, Slices]]:
    """Yield the slices of sequence `row` in tensors of the padded batch and of the sequence alone.

    The batch axis has the size `rows` in the batch and 1 alone, at any position: outputs (B, T, H), states (layers, B,
    H). Each other axis whose size differs is a time axis, of which at most `length` positions are compared.
    """
    if batch.is_nested or batch.dim() != single.dim():
        return
    sizes = list(zip(batch.shape, single.shape, strict=True))
    for axis, pair in enumerate(sizes):
        others = sizes[:axis] + sizes[axis + 1 :]
        if pair != (rows, 1) or any(alone > together for together, alone in others):
            continue
        ends = [alone if alone == together else min(alone, length) for together, alone in sizes]
        own = tuple(slice(end) for end in ends)
        yield (*own[:axis], slice(row, row + 1), *own[axis + 1 :]), (*own[:axis], slice(1), *own[axis + 1 :])


def _differ(batch: Tensor, single: Tensor) -> bool:
    """Return True if two tensors differ by more than rounding errors. Equal NaN and equal infinite values are equal."""
    if not batch.numel():
        return False
    if not batch.is_floating_point():
        return not torch.equal(batch, single)
    scale = max(1.0, float(single.nan_to_num(0, 0, 0).abs().max()))
    return not torch.allclose(batch, single, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True)


def _matters(
    network: nn.Module,
    batch: Inputs,
    run: Callable[[Inputs], np.ndarray],
    call_id: CallId,
    differences: list[_Difference],
    logits: np.ndarray,
) -> bool:
    """Return True if the logits of the batch change when the outputs of a call are replaced by the outputs alone."""

    def replace(visited: CallId, output: Any, inputs: Any) -> None:
        if visited == call_id:
            tensors = [leaf for leaf in leaves(output) if isinstance(leaf, Tensor)]
            for difference in differences:
                tensors[difference.leaf][difference.part] = difference.alone

    try:
        with _outputs_visited(network, replace):
            return logit_error(run(batch), logits) > TOLERANCE
    except (InputError, RuntimeError):  # an output that cannot be changed in place, such as an expanded tensor
        return True
