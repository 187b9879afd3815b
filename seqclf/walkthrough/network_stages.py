"""The stages of a network between the padded batch and the logits, from the recorded outputs of its modules.

A stage is shown for each part whose output is a vector for each token or for each row. Nothing depends on the class of
a part, so this holds for networks and encoders of other packages too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqclf.documents.blocks import HeatMaps
from seqclf.training.debugging.module_hooks import ModuleHooks, leaves, module_title
from seqclf.walkthrough.heat_map import first_of, number_map, row_maps, selection, tokens_that_fit, varying_channels
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage


def network_stages(network: nn.Module, run: Callable[[], Tensor], rows: ShownRows) -> list[Stage]:
    """Return the stages of a network in order of computation, without its logits.

    `run`: calls the network with the padded batch of `rows`. A part that changes nothing is left out.
    """
    outputs = record(network, run)
    lengths = _known_lengths(outputs, rows.sequences.lengths)
    shown = [outputs[""][0]]  # the logits have a stage of their own
    stages = []
    for path, arrays in outputs.items():
        module = network.get_submodule(path)
        values = next((array for array in arrays if _are_vectors(array, len(rows), lengths)), None)
        if values is None or not _is_shown(path, module):
            continue
        if not any(np.array_equal(values, other, equal_nan=True) for other in shown):  # padding may be NaN
            shown.append(values)
            stages.append(_stage(module_title(path, module), module, values, lengths, rows))
    return stages


def record(network: nn.Module, run: Callable[[], Tensor]) -> dict[str, list[np.ndarray]]:
    """Call `run` without gradients, and return the arrays in the first output of each module of `network`.

    The keys are the dotted paths of the modules, in the order in which the calls ended. Packed sequences are padded.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> outputs = record(network, lambda: network(torch.zeros(1, 2)))
    >>> list(outputs), outputs["0"][0].shape
    (['0', '1', ''], (1, 3))
    """
    outputs: dict[str, list[np.ndarray]] = {}

    def keep(path: str, role: str, value: object, inputs: object) -> None:
        if role == "output" and path not in outputs:
            tensors = [
                pad_packed_sequence(leaf, batch_first=True)[0] if isinstance(leaf, PackedSequence) else leaf
                for leaf in leaves(value)
            ]
            floats = [each.float() if each.is_floating_point() else each for each in tensors]
            outputs[path] = [np.array(each.detach()) for each in floats]  # copies, as modules may change their inputs

    hooks = ModuleHooks(network, keep)
    try:
        with torch.inference_mode():
            run()
    finally:
        hooks.remove()
    return outputs


def _known_lengths(outputs: Mapping[str, list[np.ndarray]], lengths: np.ndarray) -> dict[int, np.ndarray]:
    """Return the lengths (B,) of the rows wherever T positions are computed, as dict T → lengths.

    Encoders that shorten the rows return the new lengths beside their vectors.
    """
    returned = [array for arrays in outputs.values() for array in arrays]
    known = [array for array in returned if array.dtype == np.int64 and array.shape == lengths.shape]
    return {int(each.max()): each for each in [*reversed(known), lengths]}


def _are_vectors(array: np.ndarray, rows: int, lengths: Mapping[int, np.ndarray]) -> bool:
    """Return True for a vector for each row (B, D), or for each token (B, T, D)."""
    if array.dtype != np.float32 or array.ndim not in (2, 3) or array.size == 0 or len(array) != rows:
        return False
    return array.ndim == 2 or array.shape[1] in lengths


def _is_shown(path: str, module: nn.Module) -> bool:
    """Return True for a part of the network, and in a list of layers or heads, for a part with parts of its own.

    The entries of a list are parts of the module that has the list. Other modules inside of a part are details, and may
    read the tokens in an order of their own.
    """
    if isinstance(module, nn.Dropout):
        return False  # it changes nothing in a prediction
    names = path.split(".")
    depth = sum(not name.isdigit() for name in names)
    return depth <= 1 or (depth == 2 and depth < len(names) and any(module.children()))


def _stage(
    title: str, module: nn.Module, values: np.ndarray, lengths: Mapping[int, np.ndarray], rows: ShownRows
) -> Stage:
    documentation = [line.strip() for line in (module.__doc__ or "").replace("`", "").splitlines()]
    text = next((line for line in documentation if line.endswith(".")), "")
    names = [f"channel {number}" for number in range(1, values.shape[-1] + 1)]
    if values.ndim == 2:
        return Stage(title, text, row_maps(values, rows.names, names, "channels"), values, ("rows", "channels"))
    counts = lengths[values.shape[1]]
    vectors = values[np.arange(values.shape[1]) < counts[:, None]]
    channels = varying_channels(vectors)
    largest = float(np.abs(vectors[:, channels]).max())
    # A vector that is made of several tokens has no text.
    texts = rows.token_texts if np.array_equal(counts, rows.sequences.lengths) else None
    shown = tokens_that_fit(len(rows), len(channels))
    lines, corner = [names[channel] for channel in channels], "token" if texts else "position"
    maps = []
    for row, count in enumerate(counts.tolist()):
        headings = texts[row][:shown] if texts else [str(position + 1) for position in range(min(count, shown))]
        numbers = values[row, : len(headings)][:, channels].T
        caption = first_of(f"Row {rows.names[row]}", shown, count)
        maps.append(number_map(caption, lines, numbers, headings, corner, largest))
    blocks = [selection(len(names), "channels"), HeatMaps(maps)]
    return Stage(title, text, blocks, values, ("rows", "tokens", "channels"))
