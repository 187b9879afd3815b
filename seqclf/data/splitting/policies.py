"""Split policy, which applies the options of `data.split` to the rows that passed the checks.

Rows of the training source are divided, those of a validation or test file stay in their split. Then the policy counts
the rows that leak: a sequence, id or group is in two splits, or times overlap. `on_leak` keeps or drops them, or stops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.ragged import hash_rows, list_lengths, list_offsets
from seqclf.data.schema.casts import GROUP, TIME, RowKey
from seqclf.data.splitting import assignment
from seqclf.data.splitting.split_leakage import LeakReport, find_leaks
from seqclf.errors import InputError
from seqclf.settings.data_settings import SplitOptions

SPLITS = ("train", "validation", "test")
DROPPED = -1  # marks a dropped row; any other row has the position of its split in SPLITS


@dataclass(frozen=True)
class SplitInputs:
    """Properties of N rows of one source, by which the rows are assigned to splits and leaks are found.

    `labels`: (N,) as text. `ids`: (N,) as text, null for a row without an id, or None. `ids_count_rows`: True if each
    id is just a row number. `content_keys`: (N,) uint64, equal for equal sequences. `times`: (N,) values of
    `data.split.column`, in an event table of the first event, NaN if missing; None unless rows are split by time.
    `time_ends`: (N,) latest time of a sequence of events. `groups`: (N,) hashes of `data.group` or NO_KEY, or None.
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
    """Result of `SplitPolicy.check_leaks`. `report`: counts of the rows that leak between splits.

    `splits`: dict source → (N,) position of each row's split in SPLITS, or DROPPED for a dropped row.
    """

    report: LeakReport
    splits: dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitPolicy:
    """Validated options of `data.split`, together with `data.group`. `column`: name of the time column.

    `shares`: dict split → fraction of the training source, for validation and test without a file of their own. `fold`:
    (number of the chosen fold, number of folds) if `by` is `fold`, otherwise None.

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
        """Return a policy with validated options. `splits_with_file`: names of the splits that have a file."""
        shares = options.shares(set(splits_with_file))
        if not isinstance(options.fold, int):
            raise InputError("data.split.fold=all", "trains a model of each fold", "name one fold here")
        fold = (options.fold, options.folds) if options.by == "fold" else None
        return cls(options.by, options.column, group, shares, options.seed, fold, options.on_leak)

    @property
    def divides_train(self) -> bool:
        """True if the validation split or the test split gets rows of the training source."""
        return self.fold is not None or any(self.shares.values())

    @property
    def row_keys(self) -> list[RowKey]:
        """The time column if rows are split by time, and the group column if `data.group` is set."""
        times = [] if self.column is None or self.by != "time" else [RowKey(TIME, "data.split.column", self.column)]
        return times + ([] if self.group is None else [RowKey(GROUP, "data.group", self.group)])

    def assign(self, rows: SplitInputs, source: str) -> np.ndarray:
        """Assign the rows of the training source, and return the (N,) position of each row's split in SPLITS.

        Raises InputError if a time is missing, or if a split with a fraction above 0 gets no rows.
        """
        keys = self._keys(rows, source)
        shares = self._fractions()
        # If rows have keys, neither their splits nor their class codes may depend on the order of the rows.
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
        """Return the (N,) int64 group number of each row, or None if rows are independent.

        Groups are those of `data.group`, a row without one being its own, or, by `distinct`, of equal sequences.
        """
        if rows.groups is not None:
            return assignment.fill_missing_keys(rows.groups, rows.content_keys)
        return rows.content_keys.view(np.int64) if self.by == "distinct" else None

    def check_leaks(
        self, sources: Mapping[str, SplitInputs], splits: Mapping[str, np.ndarray], *, compare_ids: bool
    ) -> LeakCheck:
        """Count the rows that leak between splits, then warn, raise an error or drop rows as `on_leak` says.

        `splits`: dict source → (N,) position in SPLITS. Raises InputError if `on_leak` is `error` and rows leak, or if
        a split has no rows after leaking rows are dropped.
        """
        rows = list(sources.values())
        joined = np.concatenate(list(splits.values()))
        labels = codes_by_appearance(pa.chunked_array([chunk for source in rows for chunk in source.labels.chunks]))
        content_keys = np.concatenate([source.content_keys for source in rows])
        groups, starts, ends = (
            _joined([getattr(source, name) for source in rows]) for name in ("groups", "times", "time_ends")
        )
        spans = None if starts is None else np.column_stack([starts, starts if ends is None else ends])
        ids = _joined_id_codes(rows) if compare_ids else None
        report, leaking, leaked = find_leaks(content_keys, labels, joined, SPLITS, ids, groups, spans)
        if self.on_leak == "error" and leaking.any():
            drop_leaks = "data.split.on_leak=drop to score only on what training has not seen, or warn"
            remedy = f"split by data.split.by=distinct or group, or set {drop_leaks}"
            raise InputError(None, "; ".join(report.leaks_between_splits()), remedy)
        if groups is not None:
            report = replace(report, without_group=int((groups == assignment.NO_KEY).sum()))
        if self.on_leak == "warn":
            return LeakCheck(report, dict(splits))
        drop = leaking if self.on_leak == "drop" else leaked
        dropped = {name: int((drop & (joined == split)).sum()) for split, name in enumerate(SPLITS)}
        remaining = np.where(drop, DROPPED, joined)
        _require_rows_left(joined, remaining, self.on_leak)
        parts = np.split(remaining, np.cumsum([len(source) for source in rows])[:-1])
        return LeakCheck(replace(report, dropped=dropped), dict(zip(splits, parts, strict=True)))

    def _keys(self, rows: SplitInputs, source: str) -> np.ndarray | None:
        """Return the (N,) content keys, times or groups for `assignment.assign`, or None if rows are independent."""
        if self.by == "random":
            return None
        if self.by == "distinct":
            return rows.content_keys
        if self.by != "time":
            return self.groups(rows)
        assert rows.times is not None
        if np.isnan(rows.times).any():
            problem = f"data.split.column={self.column} has values that are not times"
            raise InputError(source, problem, "fix them, or name another column")
        return rows.times

    def _fractions(self) -> dict[str, float]:
        """Return dict split → fraction of the training source, with sum 1."""
        # With folds, the test split is one fold, and validation gets its fraction of the rows in the other folds.
        held_out = {name: float(self.shares.get(name, 0.0)) for name in SPLITS[1:]}
        if self.fold is not None:
            held_out["test"] = 1 / self.fold[1]
            held_out["validation"] *= 1 - held_out["test"]
        return {"train": 1 - sum(held_out.values()), **held_out}


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Either every source must have values, or none of them."""
    present = [values for values in parts if values is not None]
    return np.concatenate(present) if present else None


def _joined_id_codes(sources: list[SplitInputs]) -> np.ndarray | None:
    """Return the (N,) id code of each row of all sources, -1 for none, or None without usable ids.

    Row numbers are not usable: the number 1 in two files does not stand for the same sequence.
    """
    if all(rows.ids is None or rows.ids_count_rows for rows in sources):
        return None
    chunks: list[pa.Array] = []
    for rows in sources:
        chunks += [pa.nulls(len(rows), pa.string())] if rows.ids is None else rows.ids.chunks
    # A null id has the code 0. Subtracting 1 gives a null id the code -1.
    return codes_by_appearance(pa.chunked_array(chunks)) - 1


def _require_rows_left(before: np.ndarray, remaining: np.ndarray, on_leak: str) -> None:
    other = "an earlier" if on_leak == "drop" else "a later"
    for split, name in enumerate(SPLITS):
        if (before == split).any() and not (remaining == split).any():
            problem = f"leaves no row for {name}, as all are in {other} split too"
            remedy = "split by data.split.by=group (with data.group) or distinct, or set data.split.on_leak=warn"
            raise InputError(f"data.split.on_leak={on_leak}", problem, remedy)


def codes_by_appearance(texts: pa.ChunkedArray) -> np.ndarray:
    """Return the (N,) int64 code of each text from 1, in the order in which texts first appear, and 0 for null."""
    encoded = texts.combine_chunks().dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1


def codes_by_rank(texts: pa.ChunkedArray) -> np.ndarray:
    """Return the (N,) int64 rank of each text among the distinct texts, whatever the order of the rows."""
    encoded = texts.combine_chunks().dictionary_encode()
    rank = pc.rank(encoded.dictionary).to_numpy().astype(np.int64) - 1
    return rank[encoded.indices.to_numpy(zero_copy_only=False)]


# Keys of the rows, by which duplicates are found: hashes of what the model gets, before encoders are fit.
#
# Sequences are truncated first. Texts are equal if their tokens are, trees if their nodes are, times relative to the
# first kept token, numbers by ten digits (see `NumberEncoder.token_keys`). Two rare words differ, although a model
# reads both as unknown. With `tokenizer: bpe` and truncation, the first (or last) `max_length` words are compared, of
# which the model gets fewer, because subwords are learned only after the split.


def sequence_keys(staged: pa.RecordBatch, encoders: Mapping[str, FieldEncoder]) -> np.ndarray:
    """Return the (N,) uint64 keys of staged rows: equal for equal tokens, rarely for others (see `hashing`)."""
    token_keys = [encoder.token_keys(staged.column(name)) for name, encoder in tokens_of(encoders).items()]
    column = staged.column(next(iter(tokens_of(encoders))))
    if pa.types.is_list(column.type):
        keys = hash_rows(np.column_stack(token_keys), list_offsets(list_lengths(column)))
    else:
        (keys,) = token_keys  # a text field or a tree field is the only field of tokens, and has one key for each row
    static = [encoder.token_keys(staged.column(name)) for name, encoder in static_of(encoders).items()]
    return hash_rows(np.column_stack([keys, *static]), np.arange(len(keys) + 1)) if static else keys
