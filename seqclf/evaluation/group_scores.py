"""Scores of groups, such as patients, cards or speakers, and the names of the groups with the worst scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqclf.evaluation.design_effect import FEW_GROUPS, effective_groups
from seqclf.evaluation.intervals import CONFIDENCE
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WORST = 10  # maximum number of groups in the list `worst`


@dataclass(frozen=True, kw_only=True)
class GroupScore(JsonResult):
    """Score of one group. `hits`: rows that are predicted correctly.

    `positive_rows`, `positive_hits`: those with the positive label, or None.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"positive_rows", "positive_hits"})

    group: str
    rows: int
    hits: int
    positive_rows: int | None = None
    positive_hits: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupScores(JsonResult):
    """Scores of the groups of a split.

    `unit`: "group", or "sequence" if equal sequences form a group. `effective`: Kish's effective number of groups; as
    many of equal size would be as informative. `worst`: groups with the lowest recall of the positive label, or
    accuracy, by the upper limit of its 95 % interval.
    """

    unit: str
    count: int
    effective: float
    worst: list[GroupScore] = field(default_factory=list)

    @property
    def are_few(self) -> bool:
        """True if there are too few groups for reliable intervals."""
        return self.effective < FEW_GROUPS


def group_scores(
    labels: np.ndarray, predicted: np.ndarray, group: np.ndarray, names: pa.Array | None, positive: int | None = None
) -> GroupScores:
    """Return the scores of the groups of a split.

    `labels`, `predicted`: (N,) class numbers. `group`: (N,) codes 0 … G - 1. `names`: (N,) of the groups, null for a
    row without a group; None if equal sequences form the groups. `positive`: number of the positive class.

    >>> import pyarrow as pa
    >>> labels, predicted, group = np.ones(6, int), np.array([1, 1, 1, 0, 0, 0]), np.array([0, 0, 0, 1, 1, 1])
    >>> scores = group_scores(labels, predicted, group, pa.array(list("aaabbb")))
    >>> scores.count, [(entry.group, entry.rows, entry.hits) for entry in scores.worst]
    (2, [('b', 3, 0), ('a', 3, 3)])
    """
    count = int(group.max()) + 1
    effective = effective_groups(group)
    if names is None:
        return GroupScores(unit="sequence", count=count, effective=effective)
    right = labels == predicted
    is_positive = np.ones(len(labels), bool) if positive is None else labels == positive
    rows, hits = np.bincount(group), np.bincount(group, right).astype(np.int64)
    of_positive = np.bincount(group[is_positive], minlength=count)
    found = np.bincount(group[is_positive & right], minlength=count)
    is_named = np.zeros(count, bool)
    is_named[group[np.asarray(names.is_valid())]] = True
    candidates = np.flatnonzero(is_named & (of_positive > 0))
    order = candidates[np.argsort(_upper_limits(found[candidates], of_positive[candidates]), kind="stable")]
    first_row = np.full(count, -1)
    first_row[group[::-1]] = np.arange(len(group))[::-1]
    worst = []
    for code in order[:MAX_WORST].tolist():
        of_label = (
            {} if positive is None else {"positive_rows": int(of_positive[code]), "positive_hits": int(found[code])}
        )
        name = str(names[int(first_row[code])].as_py())
        worst.append(GroupScore(group=name, rows=int(rows[code]), hits=int(hits[code]), **of_label))
    return GroupScores(unit="group", count=count, effective=effective, worst=worst)


def _upper_limits(hits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the upper limits (G,) of the Clopper-Pearson intervals of `hits` / `rows`."""
    from scipy.stats import beta

    limits = beta.ppf(1 - (1 - CONFIDENCE) / 2, hits + 1, np.maximum(rows - hits, 1))
    return np.where(hits == rows, 1.0, limits)
