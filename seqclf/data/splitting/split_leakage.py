"""Leakage between splits: equal sequences, ids or groups, or overlapping times. Also counts contradicting labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from seqclf.system.json_result import JsonResult

REMEDY = "data.split.on_leak=drop leaves them out"
GROUP_REMEDY = f"data.split.by=group keeps each group in one of the splits that are cut here, and {REMEDY}"
# Dict attribute of `LeakReport` → text for one row, text for several rows, and the remedy.
LINES = {
    "seen_before": (
        "1 row of {split} holds a sequence that an earlier split holds too",
        "{count} rows of {split} hold a sequence that an earlier split holds too",
        REMEDY,
    ),
    "ids_seen_before": (
        "1 row of {split} has an id that an earlier split has too",
        "{count} rows of {split} have an id that an earlier split has too",
        REMEDY,
    ),
    "groups_seen_before": (
        "1 row of {split} is of a group that an earlier split has too (data.group)",
        "{count} rows of {split} are of a group that an earlier split has too (data.group)",
        GROUP_REMEDY,
    ),
    "reaching_into": (
        "1 row of an earlier split ends after {split} begins, by the times of data.split.column",
        "{count} rows of earlier splits end after {split} begins, by the times of data.split.column",
        REMEDY,
    ),
}


@dataclass(frozen=True, kw_only=True)
class LeakReport(JsonResult):
    """Counts of the rows that leak between splits, which are stored with the dataset.

    `rows`, `distinct`: rows and distinct sequences of all splits. `seen_before`, `ids_seen_before`,
    `groups_seen_before`: dict split → rows whose sequence, id or group is also in an earlier split; None without ids or
    `data.group`. `conflicting_sequences`, `conflicting_rows`: distinct sequences with several labels, and their rows.
    `without_group`: rows without a value of `data.group`. `dropped`: dict split → dropped rows. `reaching_into`: dict
    split → rows in earlier splits that end after this split begins; None unless rows are split by time.
    """

    rows: int
    distinct: int
    seen_before: dict[str, int]
    ids_seen_before: dict[str, int] | None
    conflicting_sequences: int
    conflicting_rows: int
    without_group: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    groups_seen_before: dict[str, int] | None = None
    reaching_into: dict[str, int] | None = None

    @property
    def repeated(self) -> int:
        """Number of rows whose sequence also occurs in a row before them, in the same split or in another split."""
        return self.rows - self.distinct

    def is_apart(self, split: str) -> bool:
        """Return True if a split shares no group and no time span with an earlier split."""
        shared = [(counts or {}).get(split, 0) for counts in (self.groups_seen_before, self.reaching_into)]
        return bool(self.dropped) or not any(shared)

    def leaks_between_splits(self) -> list[str]:
        """Return a line for each kind of leak and each split: sequences, ids, groups or times of an earlier split."""
        return [line for line, _ in self._leaks()]

    def _leaks(self) -> list[tuple[str, str]]:
        """Each line has its remedy."""
        return [
            ((one if count == 1 else several).format(split=split, count=count), remedy)
            for attribute, (one, several, remedy) in LINES.items()
            for split, count in (getattr(self, attribute) or {}).items()
            if count
        ]

    def warnings(self) -> list[str]:
        """Return a line for each problem: leaks, rows without group, repeated rows, contradicting labels."""
        lines = [] if self.dropped else [f"{line}; {remedy}" for line, remedy in self._leaks()]
        if self.without_group:
            rows = _counted(self.without_group, "row has", "rows have")
            lines.append(f"{rows} no value in data.group; each forms a separate group")
        if self.repeated:
            verb = "repeats" if self.repeated == 1 else "repeat"
            lines.append(f"{self.repeated} of {self.rows} rows {verb} an earlier row ({self.distinct} are distinct)")
        if self.conflicting_sequences:
            lines.append(
                f"{_counted(self.conflicting_sequences, 'sequence stands', 'sequences stand')} under more than one "
                f"label, in {self.conflicting_rows} rows"
            )
        return lines


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


class Leaks(NamedTuple):
    """Rows that leak between splits, as (N,) masks. The splits have the order train, validation, test.

    `leaking`: rows that share a sequence, id or group with an earlier split or overlap its time span. `leaked`: later.
    """

    report: LeakReport
    leaking: np.ndarray
    leaked: np.ndarray


def find_leaks(
    keys: np.ndarray,
    labels: np.ndarray,
    splits: np.ndarray,
    names: tuple[str, ...],
    ids: np.ndarray | None,
    groups: np.ndarray | None = None,
    spans: np.ndarray | None = None,
) -> Leaks:
    """Compare the rows of all splits, and find the rows that leak from one split to another.

    `keys`: (N,) keys of the sequences (see `sequence_keys`). `labels`: (N,) class codes. `splits`: (N,) position in
    `names`, -1 for none. `ids`, `groups`: (N,) codes, -1 for none, or None if no row has one. `spans`: (N, 2) first and
    last time of each row, NaN if unknown.

    >>> keys, labels, splits = np.array([7, 8, 7]), np.array([0, 1, 1]), np.array([0, 0, 1])
    >>> leaks = find_leaks(keys, labels, splits, ("train", "validation"), ids=None)
    >>> leaks.report.seen_before, leaks.report.conflicting_sequences, leaks.leaking.tolist(), leaks.leaked.tolist()
    ({'validation': 1}, 1, [False, False, True], [True, False, False])
    """
    used = splits >= 0
    repeated, repeats = _shared_rows(keys, splits)
    shared, shares = _shared_rows(ids, splits)
    in_group, of_group = _shared_rows(groups, splits)
    late, early, reaching = _overlaps(spans, splits, len(names))
    distinct, sequence = np.unique(keys[used], return_inverse=True)
    label_count = _labels_per_sequence(sequence, labels[used], len(distinct))
    later = {name: splits == split for split, name in enumerate(names) if split and (splits == split).any()}

    def counts(mask: np.ndarray) -> dict[str, int]:
        return {name: int(mask[rows].sum()) for name, rows in later.items()}

    report = LeakReport(
        rows=int(used.sum()),
        distinct=len(distinct),
        seen_before=counts(repeated),
        ids_seen_before=None if ids is None else counts(shared),
        conflicting_sequences=int((label_count > 1).sum()),
        conflicting_rows=int((label_count > 1)[sequence].sum()),
        groups_seen_before=None if groups is None else counts(in_group),
        reaching_into=None if spans is None else {name: reaching[names.index(name)] for name in later},
    )
    return Leaks(report, repeated | shared | in_group | late, repeats | shares | of_group | early)


def _overlaps(spans: np.ndarray | None, splits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return (N,) masks of rows that begin before an earlier split ends, and that end after a later split begins.

    Third, for each of `count` splits, the number of rows of earlier splits that end after it begins.
    """
    late, early = np.zeros((2, len(splits)), bool)
    reaching = [0] * count
    if spans is None:
        return late, early, reaching
    for split in range(1, count):
        before, inside = (splits >= 0) & (splits < split), splits == split
        begins, ends = spans[inside, 0], spans[before, 1]
        if not np.isfinite(begins).any() or not np.isfinite(ends).any():
            continue
        beyond = before & (spans[:, 1] > np.nanmin(begins))
        reaching[split] = int(beyond.sum())
        early |= beyond
        late |= inside & (spans[:, 0] < np.nanmax(ends))
    return late, early, reaching


def _labels_per_sequence(sequence: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Return the (count,) number of labels of each distinct sequence. `sequence`: (N,) its number in each row."""
    # `np.unique` sorts numbers much faster than pairs.
    classes = int(labels.max(initial=0)) + 1
    pairs = np.unique(sequence.astype(np.int64) * classes + labels)
    return np.bincount(pairs // classes, minlength=count)


def _shared_rows(codes: np.ndarray | None, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (N,) masks of rows whose code is in an earlier split, and in a later one.

    Rows in no split and with a negative code are ignored, and all rows if `codes` is None.
    """
    in_earlier, in_later = np.zeros((2, len(splits)), bool)
    if codes is None:
        return in_earlier, in_later
    used = (splits >= 0) & (codes >= 0)
    distinct, inverse = np.unique(codes[used], return_inverse=True)
    first = np.full(len(distinct), np.iinfo(np.int64).max)
    last = np.full(len(distinct), -1)
    np.minimum.at(first, inverse, splits[used])
    np.maximum.at(last, inverse, splits[used])
    in_earlier[used] = splits[used] > first[inverse]
    in_later[used] = splits[used] < last[inverse]
    return in_earlier, in_later
