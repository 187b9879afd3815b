"""Split policy: the options of `data.split`, applied to the rows that were read.

Rows of the training source are assigned to train, validation and test. Files named for validation or test keep all
their rows. Afterwards rows that two splits share are counted, and dropped or refused where `on_leak` asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.hashing import hash_rows
from seqclf.data.ragged import list_lengths, list_offsets
from seqclf.data.schema.casts import GROUP, TIME, RowKey
from seqclf.data.splitting import assignment
from seqclf.data.splitting.split_leakage import LeakReport, find_leaks
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.data.splitting.options import SplitOptions


SPLITS = ("train", "validation", "test")
DROPPED = -1  # instead of a position in SPLITS


@dataclass(frozen=True)
class SplitInputs:
    """Attributes of the (N,) accepted rows of one source that decide on splits and leaks.

    `labels`: text. `ids`: text, null where a row has none, or None. `ids_count_rows`: they only count the rows.
    `content_keys`: (N,) uint64, equal where sequences are equal. `times`: (N,) values of `data.split.column`, NaN where
    missing. `time_ends`: the same of the last events, where a sequence may have others than its first. `groups`: (N,)
    int64 hashes of the values of `data.group`, NO_KEY where missing. None where the option is.
    """

    labels: pa.ChunkedArray
    ids: pa.ChunkedArray | None
    content_keys: np.ndarray
    ids_count_rows: bool = False
    times: np.ndarray | None = None
    time_ends: np.ndarray | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.content_keys)


class LeakCheck(NamedTuple):
    """`report`: counts of what splits share. `splits`: by source, (N,) position in SPLITS or DROPPED."""

    report: LeakReport
    splits: dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitPolicy:
    """Checked options of `data.split`, and `data.group`.

    `column`: of times. `group`: column of what rows belong to. `shares`: fractions of the training source for
    validation and test, without those that have a file. `fold`: (fold, number of folds) for `by=fold`, else None.

    >>> policy = SplitPolicy("random", None, None, {"validation": 0.25, "test": 0.25}, 0, fold=None, on_leak="warn")
    >>> rows = SplitInputs(pa.chunked_array([["a", "b"] * 4]), None, np.arange(8, dtype=np.uint64))
    >>> [SPLITS[split] for split in policy.assign(rows, "train.csv")]
    ['test', 'validation', 'train', 'train', 'train', 'train', 'validation', 'test']
    """

    by: str
    column: str | None
    group: str | None
    shares: Mapping[str, float]
    seed: int
    fold: tuple[int, int] | None
    on_leak: str

    @classmethod
    def from_options(cls, options: SplitOptions, group: str | None, splits_with_file: Collection[str]) -> SplitPolicy:
        """Policy of checked options. `splits_with_file`: those of SPLITS that the user gave a file for."""
        shares = options.shares(set(splits_with_file))
        fold = (options.fold, options.folds) if options.by == "fold" else None
        return cls(options.by, options.column, group, shares, options.seed, fold, options.on_leak)

    @property
    def divides_train(self) -> bool:
        """True if some rows of the training source are for validation or test."""
        return self.fold is not None or any(self.shares.values())

    @property
    def row_keys(self) -> list[RowKey]:
        """The columns of times, if they split, and of groups."""
        times = [] if self.column is None or self.by != "time" else [RowKey(TIME, "data.split.column", self.column)]
        return times + ([] if self.group is None else [RowKey(GROUP, "data.group", self.group)])

    def assign(self, rows: SplitInputs, source: str) -> np.ndarray:
        """(N,) position in SPLITS of each row of the training source.

        `source` names the file in errors. Raises InputError if keys are unusable or a split with a share stays empty.
        """
        keys = self._keys(rows, source)
        shares = self._fractions()
        # With keys the splits must not depend on the order of rows, and neither may the codes of labels.
        codes = codes_by_appearance(rows.labels) if keys is None else codes_by_rank(rows.labels)
        splits = assignment.assign(codes, shares, self.by, keys, self.seed, self.fold)
        column = self.column if self.by == "time" else self.group
        folds = None if self.fold is None else self.fold[1]
        try:
            assignment.check_filled(splits, shares, self.by, column, keys, folds)
        except InputError as error:
            raise error.within(source) from None
        return splits

    def groups(self, rows: SplitInputs) -> np.ndarray | None:
        """(N,) int64, equal for rows of one group, or of equal sequences where these must stay in one split.

        A row without a group is a group of its own. None where each row stands alone.
        """
        if rows.groups is not None:
            return assignment.fill_missing_keys(rows.groups, rows.content_keys)
        return rows.content_keys.view(np.int64) if self.by == "distinct" else None

    def check_leaks(
        self, sources: Mapping[str, SplitInputs], splits: Mapping[str, np.ndarray], *, compare_ids: bool
    ) -> LeakCheck:
        """Count rows that a later split shares with an earlier one, and treat them as `on_leak` says.

        `splits`: by source, (N,) position in SPLITS. Raises InputError for `on_leak=error`, or if dropping leaves a
        split without rows.
        """
        joined = np.concatenate(list(splits.values()))
        ids = _joined_id_codes(list(sources.values())) if compare_ids else None
        labels = codes_by_appearance(
            pa.chunked_array([chunk for rows in sources.values() for chunk in rows.labels.chunks])
        )
        content_keys = np.concatenate([rows.content_keys for rows in sources.values()])
        rows = list(sources.values())
        groups = _joined([source.groups for source in rows])
        starts, ends = (_joined([getattr(source, name) for source in rows]) for name in ("times", "time_ends"))
        spans = None if starts is None else np.column_stack([starts, starts if ends is None else ends])
        report, leaking, leaked = find_leaks(content_keys, labels, joined, SPLITS, ids, groups, spans)
        if self.on_leak == "error" and leaking.any():
            raise InputError(
                None,
                "; ".join(report.leaks_between_splits()),
                "split by data.split.by=distinct or group, or set data.split.on_leak=drop to score only on what "
                "training has not seen, or warn",
            )
        if groups is not None:
            report = replace(report, without_group=int((groups == assignment.NO_KEY).sum()))
        if self.on_leak == "warn":
            return LeakCheck(report, dict(splits))
        drop = leaking if self.on_leak == "drop" else leaked
        dropped = {name: int((drop & (joined == split)).sum()) for split, name in enumerate(SPLITS)}
        remaining = np.where(drop, DROPPED, joined)
        _require_rows_left(joined, remaining, self.on_leak)
        ends = np.cumsum([len(rows) for rows in splits.values()])
        return LeakCheck(
            replace(report, dropped=dropped), dict(zip(splits, np.split(remaining, ends[:-1]), strict=True))
        )

    def _keys(self, rows: SplitInputs, source: str) -> np.ndarray | None:
        """(N,) keys for `assignment.assign`: contents, times or groups, or None."""
        if self.by == "random":
            return None
        if self.by == "distinct":
            return rows.content_keys
        if self.by != "time":
            return self.groups(rows)
        assert rows.times is not None
        if np.isnan(rows.times).any():
            raise InputError(
                source,
                f"data.split.column={self.column} has values that are not times",
                "fix them, or name another column",
            )
        return rows.times

    def _fractions(self) -> dict[str, float]:
        """The fraction of the training source for each of SPLITS. Their sum is 1."""
        # With folds, the test split is one fold, and the share of validation is taken from the rest.
        held_out = {name: float(self.shares.get(name, 0.0)) for name in SPLITS[1:]}
        if self.fold is not None:
            held_out["test"] = 1 / self.fold[1]
            held_out["validation"] *= 1 - held_out["test"]
        return {"train": 1 - sum(held_out.values()), **held_out}


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Return the values of all sources, None where they have none. All of them have some, or none has."""
    present = [values for values in parts if values is not None]
    return np.concatenate(present) if present else None


def _joined_id_codes(sources: list[SplitInputs]) -> np.ndarray | None:
    """(N,) codes of the ids of all sources, -1 for rows without one. None where no source has ids.

    None too where the ids of all sources count their rows: two files that both count from 1 share none.
    """
    if all(rows.ids is None or rows.ids_count_rows for rows in sources):
        return None
    chunks: list[pa.Array] = []
    for rows in sources:
        chunks += [pa.nulls(len(rows), pa.string())] if rows.ids is None else rows.ids.chunks
    # Null has the code 0, which becomes -1: rows without an id share none.
    return codes_by_appearance(pa.chunked_array(chunks)) - 1


def _require_rows_left(before: np.ndarray, remaining: np.ndarray, on_leak: str) -> None:
    """Raise InputError if a split had rows and has none left."""
    other = "an earlier" if on_leak == "drop" else "a later"
    for split, name in enumerate(SPLITS):
        if (before == split).any() and not (remaining == split).any():
            raise InputError(
                f"data.split.on_leak={on_leak}",
                f"leaves no row for {name}, as all are in {other} split too",
                "split by data.split.by=distinct, or set data.split.on_leak=warn",
            )


def codes_by_appearance(texts: pa.ChunkedArray) -> np.ndarray:
    """(N,) int64 codes, equal where texts are, numbered from 1 as they first appear. Null has the code 0."""
    encoded = texts.combine_chunks().dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1


def codes_by_rank(texts: pa.ChunkedArray) -> np.ndarray:
    """(N,) int64 rank of each text among the distinct texts, which does not depend on the order of rows."""
    encoded = texts.combine_chunks().dictionary_encode()
    rank = pc.rank(encoded.dictionary).to_numpy().astype(np.int64) - 1
    return rank[encoded.indices.to_numpy(zero_copy_only=False)]


# Keys of rows that hold equal sequences, to detect duplicates.
#
# `split_leakage.find_leaks` compares and counts them, and `SplitPolicy` drops rows or refuses them (`data.on_leak`).
#
# Sequences are compared as the model gets them, but before anything is learned from them:
#
# - Both are truncated to `data.max_length`.
# - Texts are compared by the tokens of their tokenizer, so case and repeated spaces count only where they change a
#   token.
# - Trees are compared by their nodes, times relative to the first kept token, numbers by ten digits (see
#   `NumberEncoder.token_keys`).
# - A word that is too rare for the vocabulary differs from another such word. The model reads both as unknown, but
#   nothing was copied.
#
# Exception: with `tokenizer: bpe` and truncation, texts are compared by their first (or last) `max_length` words. The
# model gets as many subwords, which are known only after the splits are. Texts that differ only in the words after
# those
# subwords are therefore not counted as duplicates.


def sequence_keys(staged: pa.RecordBatch, encoders: Mapping[str, FieldEncoder]) -> np.ndarray:
    """(N,) uint64 keys of staged rows, equal if all tokens are equal. For collisions see `hashing`.

    A key depends on the content of its row alone, not on the rows before it.
    """
    columns = [staged.column(name) for name in encoders]
    token_keys = [encoder.token_keys(column) for encoder, column in zip(encoders.values(), columns, strict=True)]
    if not pa.types.is_list(columns[0].type):
        return token_keys[0]  # a text or tree stands alone, and its key is that of the row
    tokens = token_keys[0] if len(token_keys) == 1 else np.column_stack(token_keys)
    return hash_rows(tokens, list_offsets(list_lengths(columns[0])))
