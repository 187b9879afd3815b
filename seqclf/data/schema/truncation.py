"""Truncation: the maximum length of a sequence, and the end of a sequence that truncation keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import Ragged, list_lengths, list_offsets

SIDES = ("error", "keep_first", "keep_last")
ORIGINAL_LENGTH = "length before truncation"  # column name; field names contain no spaces


class Truncation(NamedTuple):
    """A limit of `max_length` tokens per sequence, and the side of longer sequences that is kept.

    With the side `keep_first` or `keep_last`, lists are truncated before anything is computed from their tokens, in
    training and in prediction, so a model gets the same input for a long sequence as for the truncated one.

    >>> Truncation(3, "keep_last").cut_words(["a", "b", "c", "d"])
    ['b', 'c', 'd']
    >>> record_batch = pa.record_batch({"x": [[1, 2, 3, 4], [5]]})
    >>> Truncation(3, "keep_first").cut_lists(record_batch, ["x"]).to_pydict()
    {'x': [[1, 2, 3], [5]], 'length before truncation': [4, 1]}
    """

    max_length: int | None
    side: str

    @property
    def cuts(self) -> bool:
        return self.max_length is not None and self.side != "error"

    def cut_lists(self, record_batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        """Truncate the lists in `names`, equally long in a row, and add the column ORIGINAL_LENGTH of their lengths."""
        names = {name for name in names if pa.types.is_list(record_batch.column(name).type)}
        if not self.cuts or not names:
            return record_batch
        lengths = list_lengths(record_batch.column(next(iter(names))))
        columns = {name: record_batch.column(name) for name in record_batch.schema.names}
        if lengths.max(initial=0) > self.max_length:
            offsets, kept = self._kept_tokens(lengths)
            starts, indices = pa.array(offsets, pa.int32()), pa.array(kept)
            for name in names:
                columns[name] = pa.ListArray.from_arrays(starts, pc.list_flatten(columns[name]).take(indices))
        return pa.record_batch({**columns, ORIGINAL_LENGTH: pa.array(lengths, pa.int32())})

    def cut_tokens(self, lengths: np.ndarray, fields: dict[str, np.ndarray]) -> Ragged:
        """Truncate encoded sequences. `lengths`: (N,) int64. `fields`: dict array name → (S,) or (S, D) tokens."""
        if not self.cuts or lengths.max(initial=0) <= (self.max_length or 0):
            return Ragged(list_offsets(lengths), fields)
        # Indexing copies all tokens, so it is avoided above if no sequence is too long.
        offsets, kept = self._kept_tokens(lengths)
        return Ragged(offsets, {name: tokens[kept] for name, tokens in fields.items()})

    def cut_words(self, words: list[str]) -> list[str]:
        if not self.cuts or len(words) <= (self.max_length or 0):
            return words
        return words[: self.max_length] if self.side == "keep_first" else words[-(self.max_length or 0) :]

    def _kept_tokens(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the (N + 1,) offsets of the truncated sequences, and the indices of kept tokens."""
        assert self.max_length is not None
        starts = np.cumsum(lengths) - lengths
        kept_lengths = np.minimum(lengths, self.max_length)
        if self.side == "keep_last":
            starts = starts + lengths - kept_lengths
        offsets = list_offsets(kept_lengths)
        return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], kept_lengths)


NO_TRUNCATION = Truncation(None, "error")
