"""Scores of a model by the period of its rows, such as the month: whether it still works, and since when not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.evaluation.metrics import classification_metrics
from seqclf.system.json_result import JsonResult

Period = Literal["day", "week", "month", "year"]
WEEK_START = np.timedelta64(4, "D")  # 1970-01-01 was a Thursday, and weeks of NumPy start there
MAX_PERIODS = 400  # a year of days; more rows would not be read


@dataclass(frozen=True, kw_only=True)
class PeriodScores(JsonResult):
    """Scores of the rows of one period.

    `period`: its first day, month or year, as text. `recall`: of the positive label, None without such rows, or macro
    recall over the classes of the period. `share`: fraction of rows of the positive label, or None. `mean_score`: mean
    probability of the positive label, or of the most probable label.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"share"})

    period: str
    rows: int
    accuracy: float
    recall: float | None
    share: float | None
    mean_score: float


def scores_by_period(
    seconds: np.ndarray,
    by: Period,
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
) -> list[PeriodScores]:
    """Return the scores of each period with rows, the earliest first, of at most the last `MAX_PERIODS`.

    `seconds`: (N,) times since 1970 in UTC, NaN for rows that are left out. `labels`, `predicted`: (N,).
    `probabilities`: (N, C).

    >>> times = np.array([0.0, 86400 * 40, np.nan])
    >>> rows = np.array([0, 1, 1]), np.array([0, 0, 1]), np.eye(2)[[0, 0, 1]]
    >>> [(part.period, part.rows, part.accuracy) for part in scores_by_period(times, "month", *rows, ["a", "b"], "b")]
    [('1970-01', 1, 1.0), ('1970-02', 1, 0.0)]
    """
    known = np.flatnonzero(np.isfinite(seconds))
    times = np.floor(seconds[known]).astype("datetime64[s]")
    if by == "week":
        times = (times - WEEK_START).astype("datetime64[W]").astype("datetime64[D]") + WEEK_START
    starts = times.astype({"day": "datetime64[D]", "week": "datetime64[D]"}.get(by, f"datetime64[{by[0].upper()}]"))
    found = []
    for start in np.unique(starts)[-MAX_PERIODS:]:
        rows = known[starts == start]
        metrics = classification_metrics(labels[rows], probabilities[rows], classes, positive, predicted[rows])
        present = [value for value in metrics.recall_by_class.values() if value is not None]
        code = None if positive is None else classes.index(positive)
        scores = probabilities[rows].max(axis=1) if code is None else probabilities[rows, code]
        of_label = metrics.recall_by_class[positive] if positive is not None else float(np.mean(present))
        found.append(
            PeriodScores(
                period=str(start),
                rows=len(rows),
                accuracy=round(metrics.accuracy, 6),
                recall=None if of_label is None else round(of_label, 6),
                share=None if code is None else round(float((labels[rows] == code).mean()), 6),
                mean_score=round(float(scores.mean()), 6),
            )
        )
    return found


def check_times(times: np.ndarray, where: str, column: str) -> None:
    """Print how many rows have no time (see `scores_by_period`). Raises InputError if none has one."""
    unread = int((~np.isfinite(times)).sum())
    if unread == len(times):
        remedy = "write it as 2024-01-31, or name another column: time=COLUMN"
        raise InputError(where, f"no row has a time in the column {column} that can be read", remedy)
    if unread:
        show_note(f"{where}: {unread} of {len(times)} rows have no time in the column {column} that can be read")
