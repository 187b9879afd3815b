"""Leakage between splits: equal sequences, shared ids, and sequences with contradicting labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Leaks(NamedTuple):
    """Leakage between splits.

    `report`: counts as plain values, kept with the dataset. `leaking_rows`: (N,) bool, rows of later splits that hold a
    sequence or an id of an earlier one.
    """

    report: dict[str, Any]
    leaking_rows: np.ndarray


def find_leaks(
    keys: np.ndarray, labels: np.ndarray, splits: np.ndarray, names: tuple[str, ...], ids: np.ndarray | None
) -> Leaks:
    """Compare the rows of all splits.

    `keys`: (N,), equal where sequences are (see `duplicates`). `labels`: (N,) class codes. `splits`: (N,) position of
    each row's split in `names`, -1 for none. `ids`: (N,) codes, -1 for rows without an id, or None if no row has one.

    >>> keys, labels, splits = np.array([7, 8, 7]), np.array([0, 1, 1]), np.array([0, 0, 1])
    >>> leaks = find_leaks(keys, labels, splits, ("train", "validation"), ids=None)
    >>> leaks.report["seen_before"], leaks.report["conflicting_sequences"], leaks.leaking_rows.tolist()
    ({'validation': 1}, 1, [False, False, True])
    """
    used = splits >= 0
    # Rows in no split can neither leak nor be leaked to.
    repeated = _seen_in_earlier_split(keys, splits, used)
    shared = np.zeros(len(keys), bool) if ids is None else _seen_in_earlier_split(ids, splits, used & (ids >= 0))
    distinct, sequence = np.unique(keys[used], return_inverse=True)
    label_count = _labels_per_sequence(sequence, labels[used], len(distinct))
    later = {name: splits == split for split, name in enumerate(names) if split and (splits == split).any()}
    report: dict[str, Any] = {
        "rows": int(used.sum()),
        "distinct": len(distinct),
        "seen_before": {name: int(repeated[rows].sum()) for name, rows in later.items()},
        "ids_seen_before": None if ids is None else {name: int(shared[rows].sum()) for name, rows in later.items()},
        "conflicting_sequences": int((label_count > 1).sum()),
        "conflicting_rows": int((label_count > 1)[sequence].sum()),
    }
    return Leaks(report, repeated | shared)


def _labels_per_sequence(sequence: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """(count,) number of different labels of each distinct sequence. `sequence`, `labels`: (N,) codes."""
    classes = int(labels.max(initial=0)) + 1
    pairs = np.unique(sequence.astype(np.int64) * classes + labels)
    return np.bincount(pairs // classes, minlength=count)


def _seen_in_earlier_split(values: np.ndarray, splits: np.ndarray, used: np.ndarray) -> np.ndarray:
    """(N,) mask of rows whose value also occurs in an earlier split. Only rows in the mask `used` count."""
    distinct, inverse = np.unique(values[used], return_inverse=True)
    earliest = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(earliest, inverse, splits[used])
    seen = np.zeros(len(values), bool)
    seen[used] = splits[used] > earliest[inverse]
    return seen


def leak_lines(report: dict[str, Any], only_across: bool = False) -> list[str]:
    """Return a readable line for each kind of leak in a report. `only_across`: leaks between splits only."""
    lines = []
    for name, count in report["seen_before"].items():
        if count:
            lines.append(f"{count} rows of {name} hold a sequence that an earlier split holds too")
    for name, count in (report["ids_seen_before"] or {}).items():
        if count:
            lines.append(f"{count} rows of {name} have an id that an earlier split has too")
    if only_across:
        return lines
    if report.get("without_group"):
        lines.append(f"{report['without_group']} rows have no value in data.split.column; each is a group of its own")
    repeats = report["rows"] - report["distinct"]
    if repeats:
        lines.append(f"{repeats} of {report['rows']} rows repeat an earlier row ({report['distinct']} are distinct)")
    if report["conflicting_sequences"]:
        lines.append(
            f"{report['conflicting_sequences']} sequences stand under more than one label, in "
            f"{report['conflicting_rows']} rows"
        )
    return lines
