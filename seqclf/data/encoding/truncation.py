"""The longest sequence a model gets, and which end of a longer one it keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.storage.ragged import Ragged

SIDES = ("error", "keep_first", "keep_last")
ORIGINAL_LENGTH = "length before truncation"  # a column; no field can be called so


class Truncation(NamedTuple):
    """`max_length` tokens at most; with `side` `keep_first` or `keep_last`, longer sequences are cut to that.

    Lists are cut before anything is computed from them, in training and in prediction alike: vocabularies, scales,
    fills, time gaps and duplicates know the kept tokens only. So a long sequence and its kept part are one input.
    """

    max_length: int | None
    side: str

    @property
    def cuts(self) -> bool:
        return self.max_length is not None and self.side != "error"

    def lists(self, batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        """The batch with the list columns among `names` cut, and their lengths before that as the column UNCUT.

        The lists of a row are of one length and none of them is null.
        """
        names = {name for name in names if pa.types.is_list(batch.column(name).type)}
        if not self.cuts or not names:
            return batch
        lengths = pc.list_value_length(batch.column(next(iter(names)))).to_numpy(zero_copy_only=False)
        columns = {name: batch.column(name) for name in batch.schema.names}
        if lengths.max(initial=0) > self.max_length:
            offsets, indices = self._kept(lengths.astype(np.int64))
            starts, taken = pa.array(offsets, pa.int32()), pa.array(indices)
            for name in names:
                columns[name] = pa.ListArray.from_arrays(starts, pc.list_flatten(columns[name]).take(taken))
        return pa.record_batch({**columns, ORIGINAL_LENGTH: pa.array(lengths, pa.int32())})

    def ragged(self, lengths: np.ndarray, fields: dict[str, np.ndarray]) -> Ragged:
        """Encoded tokens, (S,) or (S, D) end to end, cut. `lengths`: (N,) int64."""
        if not self.cuts or lengths.max(initial=0) <= (self.max_length or 0):
            return Ragged(np.concatenate([[0], np.cumsum(lengths)]), fields)
        offsets, indices = self._kept(lengths)
        return Ragged(offsets, {name: tokens[indices] for name, tokens in fields.items()})

    def words(self, words: list[str]) -> list[str]:
        """The part of one sequence that is kept."""
        if not self.cuts or len(words) <= (self.max_length or 0):
            return words
        return words[: self.max_length] if self.side == "keep_first" else words[-(self.max_length or 0) :]

    def _kept(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N + 1,) offsets of the cut sequences, and the indices of their tokens among all."""
        assert self.max_length is not None
        starts = np.cumsum(lengths) - lengths
        kept = np.minimum(lengths, self.max_length)
        if self.side == "keep_last":
            starts = starts + lengths - kept
        offsets = np.concatenate([[0], np.cumsum(kept)])
        return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], kept)


WHOLE = Truncation(None, "error")
