"""Truncation: the longest sequence a model gets, and the end that a longer one keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import Ragged, list_lengths, list_offsets

SIDES = ("error", "keep_first", "keep_last")
ORIGINAL_LENGTH = "length before truncation"  # a column; its spaces keep it apart from names of fields


class Truncation(NamedTuple):
    """Limit of `max_length` tokens per sequence. With `side` `keep_first` or `keep_last`, longer ones are truncated.

    Lists are truncated before anything is computed from them, in training and in prediction alike. Vocabularies,
    scales, fills, time gaps and duplicate keys see the kept tokens only, so a long sequence and its kept part are the
    same input.

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
        """True if longer sequences are truncated. Otherwise they are refused, or there is no limit."""
        return self.max_length is not None and self.side != "error"

    def cut_lists(self, record_batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        """Truncate the list columns among `names` and add their lengths before that as the column ORIGINAL_LENGTH.

        The lists of a row must be of one length and none of them null.
        """
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
        """Truncate encoded tokens. `lengths`: (N,) int64. `fields`: name → (S,) or (S, D), rows end to end."""
        if not self.cuts or lengths.max(initial=0) <= (self.max_length or 0):
            return Ragged(list_offsets(lengths), fields)
        # Fancy indexing copies; sequences within the limit are returned above without one.
        offsets, kept = self._kept_tokens(lengths)
        return Ragged(offsets, {name: tokens[kept] for name, tokens in fields.items()})

    def cut_words(self, words: list[str]) -> list[str]:
        """Truncate one sequence."""
        if not self.cuts or len(words) <= (self.max_length or 0):
            return words
        return words[: self.max_length] if self.side == "keep_first" else words[-(self.max_length or 0) :]

    def _kept_tokens(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N + 1,) offsets of the truncated sequences, and the indices of their tokens among all (S,) tokens."""
        assert self.max_length is not None
        starts = np.cumsum(lengths) - lengths
        kept_lengths = np.minimum(lengths, self.max_length)
        if self.side == "keep_last":
            starts = starts + lengths - kept_lengths
        offsets = list_offsets(kept_lengths)
        return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], kept_lengths)


NO_TRUNCATION = Truncation(None, "error")
