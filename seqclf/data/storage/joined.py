"""Copies of several splits as one split, for a training on the rows of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split, release_pages


def join_splits(splits: Sequence[Split], folder: Path) -> Split:
    """Return the rows of all splits as one split in their order, without original texts and names of groups.

    The tokens are written to new files in `folder`, because splits may be larger than memory.
    """
    folder.mkdir(parents=True)
    first, *others = splits
    offsets, parts = first.sequences.offsets, [split.sequences for split in splits]
    for split in others:
        offsets = np.concatenate([offsets, offsets[-1] + split.sequences.offsets[1:]])
    return Split(
        Ragged(
            offsets,
            _join_tokens(parts, folder),
            {name: np.concatenate([part.static[name] for part in parts]) for name in parts[0].static},
        ),
        np.concatenate([split.labels for split in splits]),
        pa.concat_arrays([split.ids for split in splits]),
        np.concatenate([split.row_numbers for split in splits]),
        _join_optional([split.original_lengths for split in splits]),
        _join_optional([split.groups for split in splits]),
    )


def _join_tokens(parts: Sequence[Ragged], folder: Path) -> dict[str, np.ndarray]:
    total = sum(int(part.offsets[-1]) for part in parts)
    joined: dict[str, np.ndarray] = {}
    for index, (name, tokens) in enumerate(parts[0].fields.items()):
        shape = (total, *tokens.shape[1:])
        target = np.lib.format.open_memmap(folder / f"{index}.npy", "w+", tokens.dtype, shape)
        start = 0
        for part in parts:
            stop = start + int(part.offsets[-1])
            target[start:stop] = part.fields[name]
            release_pages(part)
            start = stop
        joined[name] = target
    return joined


def _join_optional(values: Sequence[np.ndarray | None]) -> np.ndarray | None:
    present = [value for value in values if value is not None]
    return np.concatenate(present) if len(present) == len(values) else None
