"""Leakage between splits: equal sequences, shared ids, and sequences with contradicting labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from seqclf.system.json_result import JsonResult

REMEDY = "data.split.on_leak=drop leaves them out"


@dataclass(frozen=True, kw_only=True)
class LeakReport(JsonResult):
    """Counts of what splits share, kept with the dataset.

    `rows` in all splits, `distinct` sequences among them. `seen_before`: by later split, rows whose sequence an earlier
    split holds too. `ids_seen_before`: the same by id, None if rows have none. `conflicting_sequences` stand under
    several labels, in `conflicting_rows` rows. `without_group`: rows without a value in `data.group`. `dropped`: rows
    by split that `on_leak=drop` or `drop_earlier` removed, empty otherwise. `groups_seen_before`: as by id, by
    `data.group`, None without it. `reaching_into`: by later split, rows of earlier ones that end after it begins, None
    unless splits are by time.
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
        """Rows whose sequence an earlier row holds too, in any split."""
        return self.rows - self.distinct

    def is_apart(self, split: str) -> bool:
        """Return True if a split shares no group and no time with those before it."""
        shared = [(counts or {}).get(split, 0) for counts in (self.groups_seen_before, self.reaching_into)]
        return bool(self.dropped) or not any(shared)

    def leaks_between_splits(self) -> list[str]:
        """Return a line for each split that shares sequences, ids, groups or times with an earlier one."""
        sequences = [(name, count) for name, count in self.seen_before.items() if count]
        ids = [(name, count) for name, count in (self.ids_seen_before or {}).items() if count]
        groups = [(name, count) for name, count in (self.groups_seen_before or {}).items() if count]
        times = [(name, count) for name, count in (self.reaching_into or {}).items() if count]
        return [
            *(
                f"{_counted(count, f'row of {name} holds', f'rows of {name} hold')} a sequence that an earlier split "
                "holds too"
                for name, count in sequences
            ),
            *(
                f"{_counted(count, f'row of {name} has', f'rows of {name} have')} an id that an earlier split has too"
                for name, count in ids
            ),
            *(
                f"{_counted(count, f'row of {name} is', f'rows of {name} are')} of a group that an earlier split has "
                "too (data.group)"
                for name, count in groups
            ),
            *(
                f"{_counted(count, 'row of an earlier split ends', 'rows of earlier splits end')} after {name} begins, "
                "by the times of data.split.column"
                for name, count in times
            ),
        ]

    def warnings(self) -> list[str]:
        """Return a line for each problem: leaks between splits, rows without a group, repeats and contradictions."""
        # Here and not where they are shown: the survey's JSON, the model card and the terminal have the same lines.
        # Rows that were dropped leak no longer, and are reported as dropped.
        lines = [] if self.dropped else [f"{line}; {REMEDY}" for line in self.leaks_between_splits()]
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
    """Leakage between splits. `leaking`, `leaked`: (N,) bool, rows that an earlier or a later split shares.

    A split shares a row that holds one of its sequences, ids, groups or times.
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
    """Compare the rows of all splits.

    `keys`: (N,), equal where sequences are (see `sequence_keys`). `labels`: (N,) class codes. `splits`: (N,) position
    of each row's split in `names`, -1 for none. `ids`: (N,) codes, -1 for rows without an id, or None if no row has
    one. `groups`: the same for groups. `spans`: (N, 2) first and last time of each row, NaN where unknown.

    >>> keys, labels, splits = np.array([7, 8, 7]), np.array([0, 1, 1]), np.array([0, 0, 1])
    >>> leaks = find_leaks(keys, labels, splits, ("train", "validation"), ids=None)
    >>> leaks.report.seen_before, leaks.report.conflicting_sequences, leaks.leaking.tolist(), leaks.leaked.tolist()
    ({'validation': 1}, 1, [False, False, True], [True, False, False])
    """
    used = splits >= 0
    # Rows in no split can neither leak nor be leaked to.
    repeated, repeats = _shared_rows(keys, splits, used)
    shared, shares = _shared_codes(ids, splits, used)
    in_group, of_group = _shared_codes(groups, splits, used)
    late, early, reaching = _overlaps(spans, splits, len(names))
    distinct, sequence = np.unique(keys[used], return_inverse=True)
    label_count = _labels_per_sequence(sequence, labels[used], len(distinct))
    later = {name: splits == split for split, name in enumerate(names) if split and (splits == split).any()}
    report = LeakReport(
        rows=int(used.sum()),
        distinct=len(distinct),
        seen_before={name: int(repeated[rows].sum()) for name, rows in later.items()},
        ids_seen_before=None if ids is None else {name: int(shared[rows].sum()) for name, rows in later.items()},
        conflicting_sequences=int((label_count > 1).sum()),
        conflicting_rows=int((label_count > 1)[sequence].sum()),
        groups_seen_before=(
            None if groups is None else {name: int(in_group[rows].sum()) for name, rows in later.items()}
        ),
        reaching_into=None if spans is None else {name: reaching[names.index(name)] for name in later},
    )
    return Leaks(report, repeated | shared | in_group | late, repeats | shares | of_group | early)


def _overlaps(spans: np.ndarray | None, splits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return masks of the rows that begin before an earlier split ends, and that end after a later split begins.

    The third is, for each of `count` splits, how many rows of earlier ones end after it begins.
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
    """(count,) number of different labels of each distinct sequence. `sequence`, `labels`: (N,) codes."""
    # A pair as one number: `np.unique` sorts numbers much faster than rows of two columns.
    classes = int(labels.max(initial=0)) + 1
    pairs = np.unique(sequence.astype(np.int64) * classes + labels)
    return np.bincount(pairs // classes, minlength=count)


def _shared_codes(codes: np.ndarray | None, splits: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_shared_rows` of codes, of which -1 stands for none, or of no codes at all."""
    return _shared_rows(splits if codes is None else codes, splits, used & (False if codes is None else codes >= 0))


def _shared_rows(values: np.ndarray, splits: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) masks of the rows whose value an earlier split holds too, and a later one. Only rows in `used` count."""
    distinct, inverse = np.unique(values[used], return_inverse=True)
    first = np.full(len(distinct), np.iinfo(np.int64).max)
    last = np.full(len(distinct), -1)
    np.minimum.at(first, inverse, splits[used])
    np.maximum.at(last, inverse, splits[used])
    in_earlier, in_later = np.zeros((2, len(values)), bool)
    in_earlier[used] = splits[used] > first[inverse]
    in_later[used] = splits[used] < last[inverse]
    return in_earlier, in_later
