"""Slices: parts of the rows of a split by length, group or period, with their metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.design_effect import FEW_GROUPS, effective_groups
from seqclf.evaluation.intervals import CONFIDENCE
from seqclf.evaluation.metrics import LabelMetrics, confusion_matrix, confusion_metrics, label_metrics
from seqclf.evaluation.ranking import ranking_metrics
from seqclf.evaluation.scores import ScoredRows
from seqclf.system.json_result import JsonResult

BUCKETS = 5  # number of length buckets; more buckets would have too few rows for a stable recall
MAX_WORST = 10  # maximum number of groups in the list `worst`
MAX_PERIODS = 400  # a year of days; more rows would not be read
Period = Literal["day", "week", "month", "year"]
WEEK_START = np.timedelta64(4, "D")  # 1970-01-01 was a Thursday, and weeks of NumPy start there


@dataclass(frozen=True, kw_only=True)
class Slice(JsonResult):
    """Metrics of a part of the rows of a split.

    `title`: a range of lengths, "truncated", the name of a group, or the first day, the month or the year of a period.
    `shortest`, `longest`: tokens of its sequences before truncation. `recall`, `f1`: macro means over the classes of
    the part. `positive`: metrics of the positive label, if there is one. `mean_score`: mean probability of the positive
    label, or of the most probable label.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"positive"})

    title: str
    shortest: int
    longest: int
    rows: int
    accuracy: float
    recall: float
    f1: float
    mean_score: float
    positive: LabelMetrics | None = None

    @classmethod
    def of(cls, title: str, judged: JudgedRows, part: np.ndarray) -> Slice:
        """Return the slice of the rows at `part`: (M,) positions of at least one row."""
        scored, classes, positive = judged.rows.take(part), judged.classes, judged.positive
        probabilities, predicted = scored.probabilities(judged.decision), scored.predicted(judged.decision)
        labels, scores, of_positive = scored.labels.astype(np.int64), probabilities.max(axis=1), None
        metrics = confusion_metrics(confusion_matrix(labels, predicted, len(classes)), classes)
        if positive is not None:
            code = classes.index(positive)
            scores = probabilities[:, code]
            of_positive = label_metrics(metrics, positive, ranking_metrics(labels, probabilities, code))
        return cls(
            title=title,
            shortest=int(scored.lengths.min()),
            longest=int(scored.lengths.max()),
            rows=len(labels),
            accuracy=metrics.accuracy,
            recall=metrics.recall,
            f1=metrics.f1,
            mean_score=float(scores.mean()),
            positive=of_positive,
        )


class JudgedRows(NamedTuple):
    """Rows with the decision that predicts their labels. `positive`: the label that matters, or None."""

    rows: ScoredRows
    decision: Decision
    classes: list[str]
    positive: str | None


@dataclass(frozen=True, kw_only=True)
class Groups(JsonResult):
    """The groups of the rows of a split, such as patients, cards or speakers.

    `unit`: "group", or "sequence" if equal sequences form a group. `effective`: Kish's effective number of groups; as
    many of equal size would be as informative. `worst`: groups with the lowest recall of the positive label, or
    accuracy, by the upper limit of its 95 % interval.
    """

    unit: str
    count: int
    effective: float
    worst: list[Slice] = field(default_factory=list)

    @property
    def are_few(self) -> bool:
        """True if there are too few groups for reliable intervals."""
        return self.effective < FEW_GROUPS


def slices_by_length(judged: JudgedRows) -> list[Slice]:
    """Return at most `BUCKETS` slices of neighbouring lengths, with about equally many rows in each."""
    lengths, slices = judged.rows.lengths, []
    for low, high in length_buckets(lengths):
        title = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        slices.append(Slice.of(title, judged, np.flatnonzero((lengths >= low) & (lengths <= high))))
    return slices


def length_buckets(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Return at most `BUCKETS` ranges of lengths, both ends included, with about equally many rows in each range.

    >>> length_buckets(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 100]))
    [(1, 2), (3, 4), (5, 6), (7, 8), (9, 100)]
    """
    if not len(lengths):
        return []
    # `inverted_cdf` returns only lengths that occur in the data, so no bucket is empty. Buckets with the same upper end
    # are merged.
    inner = np.quantile(lengths, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf").astype(np.int64)
    ends = np.unique([*inner, lengths.max()])
    starts = [int(lengths.min()), *(ends[:-1] + 1).tolist()]
    return list(zip(starts, ends.tolist(), strict=True))


def slices_by_period(judged: JudgedRows, seconds: np.ndarray, by: Period) -> list[Slice]:
    """Return the slices of each period with rows, the earliest first, of at most the last `MAX_PERIODS`.

    `seconds`: (N,) times since 1970 in UTC, NaN for rows that are left out.
    """
    known = np.flatnonzero(np.isfinite(seconds))
    times = np.floor(seconds[known]).astype("datetime64[s]")
    if by == "week":
        times = (times - WEEK_START).astype("datetime64[W]").astype("datetime64[D]") + WEEK_START
    starts = times.astype("datetime64[D]" if by in ("day", "week") else f"datetime64[{by[0].upper()}]")
    return [Slice.of(str(start), judged, known[starts == start]) for start in np.unique(starts)[-MAX_PERIODS:]]


def check_times(times: np.ndarray, where: str, column: str) -> None:
    """Print how many rows have no time (see `slices_by_period`). Raises InputError if none has one."""
    unread = int((~np.isfinite(times)).sum())
    if unread == len(times):
        remedy = "write it as 2024-01-31, or name another column: time=COLUMN"
        raise InputError(where, f"no row has a time in the column {column} that can be read", remedy)
    if unread:
        show_note(f"{where}: {unread} of {len(times)} rows have no time in the column {column} that can be read")


def groups_of(judged: JudgedRows) -> Groups | None:
    """Return the groups of the rows, None for independent rows."""
    rows, group = judged.rows, judged.rows.group
    if group is None:
        return None
    count, effective, names = int(group.max()) + 1, effective_groups(group), rows.group_names
    if names is None:
        return Groups(unit="sequence", count=count, effective=effective)
    right = rows.labels == rows.predicted(judged.decision)
    code = None if judged.positive is None else judged.classes.index(judged.positive)
    is_positive = np.ones(len(right), bool) if code is None else rows.labels == code
    of_positive = np.bincount(group[is_positive], minlength=count)
    found = np.bincount(group[is_positive & right], minlength=count)
    is_named = np.zeros(count, bool)
    is_named[group[np.asarray(names.is_valid())]] = True
    candidates = np.flatnonzero(is_named & (of_positive > 0))
    order = candidates[np.argsort(_upper_limits(found[candidates], of_positive[candidates]), kind="stable")]
    parts = (np.flatnonzero(group == code) for code in order[:MAX_WORST])
    worst = [Slice.of(str(names[int(part[0])].as_py()), judged, part) for part in parts]
    return Groups(unit="group", count=count, effective=effective, worst=worst)


def _upper_limits(hits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the upper limits (G,) of the Clopper-Pearson intervals of `hits` / `rows`."""
    from scipy.stats import beta

    limits = beta.ppf(1 - (1 - CONFIDENCE) / 2, hits + 1, np.maximum(rows - hits, 1))
    return np.where(hits == rows, 1.0, limits)
