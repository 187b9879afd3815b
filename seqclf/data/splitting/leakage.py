"""What training could know of validation and test: equal sequences and shared ids; and labels that contradict."""

from __future__ import annotations

from typing import Any

import numpy as np

WAYS = ("warn", "error", "drop")


def find_leaks(
    keys: np.ndarray, labels: np.ndarray, parts: np.ndarray, names: tuple[str, ...], ids: np.ndarray | None
) -> tuple[dict[str, Any], np.ndarray]:
    """Counts, and (N,) which rows of later splits hold what an earlier one holds.

    `keys`: (N,) equal where sequences are (see `contents`); `labels`: (N,) codes; `parts`: (N,) position of each row's
    split in `names`, -1 for none; `ids`: (N,) codes of the ids, -1 for rows without one, or None where no row has one.
    """
    used = parts >= 0
    repeated = _repeated(keys, parts, used)
    shared = np.zeros(len(keys), bool) if ids is None else _repeated(ids, parts, used & (ids >= 0))
    sequences, member = np.unique(keys[used], return_inverse=True)
    pairs = np.unique(member.astype(np.int64) * (int(labels.max(initial=0)) + 1) + labels[used])
    kinds = np.bincount(pairs // (int(labels.max(initial=0)) + 1), minlength=len(sequences))
    later = {name: parts == part for part, name in enumerate(names) if part and (parts == part).any()}
    report: dict[str, Any] = {
        "rows": int(used.sum()),
        "distinct": len(sequences),
        "seen_before": {name: int(repeated[own].sum()) for name, own in later.items()},
        "ids_seen_before": None if ids is None else {name: int(shared[own].sum()) for name, own in later.items()},
        "conflicting_sequences": int((kinds > 1).sum()),
        "conflicting_rows": int((kinds > 1)[member].sum()),
    }
    return report, repeated | shared


def _repeated(values: np.ndarray, parts: np.ndarray, used: np.ndarray) -> np.ndarray:
    """(N,) whether a row's value also occurs in an earlier split."""
    distinct, member = np.unique(values[used], return_inverse=True)
    earliest = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(earliest, member, parts[used])
    found = np.zeros(len(values), bool)
    found[used] = parts[used] > earliest[member]
    return found


def leak_lines(report: dict[str, Any], only_across: bool = False) -> list[str]:
    """What a person should know of a report, a line each."""
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
    doubled = report["rows"] - report["distinct"]
    if doubled:
        lines.append(f"{doubled} of {report['rows']} rows repeat an earlier row ({report['distinct']} are distinct)")
    if report["conflicting_sequences"]:
        lines.append(
            f"{report['conflicting_sequences']} sequences stand under more than one label, in "
            f"{report['conflicting_rows']} rows"
        )
    return lines
