"""Copies of a split whose rows have their tokens in random order, for a model that cannot learn from the order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split

CHUNK_TOKENS = 1_000_000  # tokens that are shuffled at a time; a longer row is shuffled alone


def shuffle_split(split: Split, folder: Path, seed: int) -> Split:
    """Return the split with the tokens of each row in random order, the same order in all fields.

    The tokens are written to new files in `folder`, because a split may be larger than memory. The order of a row
    depends on `seed`, the position of the row and the lengths of the rows before it.
    """
    if not len(split.sequences):
        return split
    offsets, fields, static = split.sequences
    folder.mkdir(parents=True)
    copies = {
        name: np.lib.format.open_memmap(folder / f"{index}.npy", "w+", tokens.dtype, tokens.shape)
        for index, (name, tokens) in enumerate(fields.items())
    }
    generator = np.random.default_rng(seed)
    for first, last in _chunks(offsets):
        start, stop = offsets[first], offsets[last]
        row = np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1]))
        # Random numbers are drawn token by token, so the order does not depend on the chunks.
        order = np.lexsort((generator.random(stop - start), row))
        for name, tokens in fields.items():
            copies[name][start:stop] = np.asarray(tokens[start:stop])[order]
    # Texts show the original order, which no reader of a shuffled copy must see.
    return split._replace(sequences=Ragged(offsets, dict(copies), static), texts=None)


def _chunks(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the first row of each chunk and the row after its last one."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        last = int(np.searchsorted(offsets, offsets[first] + CHUNK_TOKENS, "right")) - 1
        last = min(max(last, first + 1), rows)
        yield first, last
        first = last
