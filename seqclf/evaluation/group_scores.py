"""Scores by group: where rows of one patient, card or speaker are right or wrong together, the worst are named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from seqclf.evaluation.design_effect import FEW_GROUPS, effective_groups
from seqclf.evaluation.intervals import CONFIDENCE
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WORST = 10  # groups that are named


@dataclass(frozen=True, kw_only=True)
class GroupScore(JsonResult):
    """A group: its rows, those that were predicted right, and the same of the positive label, if there is one."""

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"positive_rows", "positive_hits"})

    group: str
    rows: int
    hits: int
    positive_rows: int | None = None
    positive_hits: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupScores(JsonResult):
    """The groups of a split.

    `unit`: what was sampled, "group" or "sequence" (equal sequences count as one). `count`: of groups. `effective`:
    Kish's number, that of as many groups of equal size. `worst`: named groups whose recall of the positive label, or
    accuracy without one, is lowest beyond chance: in the order of the upper limit of its 95 % interval.
    """

    unit: str
    count: int
    effective: float
    worst: list[GroupScore] = field(default_factory=list)

    @property
    def are_few(self) -> bool:
        """True if intervals over so few groups say little."""
        return self.effective < FEW_GROUPS


def group_scores(
    labels: np.ndarray, predicted: np.ndarray, group: np.ndarray, names: pa.Array | None, positive: int | None = None
) -> GroupScores:
    """Return the scores of the groups of a split.

    `labels`, `predicted`: (N,) class numbers. `group`: (N,) codes 0 … G - 1. `names`: (N,) of the groups, null where a
    row has none, or None where equal sequences are the groups. `positive`: number of the positive class.

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
    """Upper limits (G,) of Clopper and Pearson's intervals."""
    from scipy.stats import beta

    limits = beta.ppf(1 - (1 - CONFIDENCE) / 2, hits + 1, np.maximum(rows - hits, 1))
    return np.where(hits == rows, 1.0, limits)
