"""Tables of the verdict: few numbers of the model next to the baselines. `reporting.verdict` has the sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqclf.evaluation.intervals import Interval
from seqclf.evaluation.metric_names import metric_title
from seqclf.evaluation.results import BaselineMetrics, MajorityMetrics, SplitMetrics
from seqclf.reporting.formatting import NO_VALUE, score, shortened

BETWEEN = (
    "Between: 95% confidence intervals of the scores on more data of this kind. They hold for any distribution of "
    "scores, also where no row went wrong, and are therefore wide where rows are few."
)
LONGEST_LABEL = 20  # in a column heading


class Column(NamedTuple):
    """A column of the verdict table: a metric, of the positive label or of all classes."""

    metric: str
    of_positive: bool = False

    def value(self, block: Any) -> Any:
        """The metric in a block of metrics or of intervals."""
        return getattr(block.positive if self.of_positive else block, self.metric)


COLUMNS = [Column(name) for name in ("recall", "precision", "f1", "accuracy")]
POSITIVE_COLUMNS = [Column(name, True) for name in ("recall", "precision", "f1", "average_precision", "auroc")]
POSITIVE_COLUMNS += [Column("recall"), Column("accuracy")]


def interval_text(interval: Interval) -> str:
    """An interval as a table cell."""
    return NO_VALUE if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def verdict_rows(
    metrics: Mapping[str, SplitMetrics], baseline: BaselineMetrics | None
) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of the verdict table.

    The rows are the last split and its intervals, the order-blind baseline and the majority class on that split, then
    the other splits.
    """
    split = list(metrics)[-1]
    judged = metrics[split]
    columns = COLUMNS if judged.positive is None else POSITIVE_COLUMNS
    rows = [_row(f"this model, {split}", judged, columns)]
    if judged.intervals is not None:
        rows.append(["between", *(interval_text(column.value(judged.intervals)) for column in columns)])
    if baseline is not None:
        rows.append(_row(f"order-blind ({baseline.model})", baseline, columns))
    positive = None if judged.positive is None else judged.positive.label
    rows.append(
        [f"always {shortened(judged.majority.label, 20)}", *_majority_cells(judged.majority, columns, positive)]
    )
    rows += [_row(name, block, columns) for name, block in metrics.items() if name != split]
    label = None if positive is None else shortened(positive, LONGEST_LABEL)
    return [metric_title(column.metric, label if column.of_positive else None) for column in columns], rows


def _row(title: str, metrics: Any, columns: Sequence[Column]) -> list[str]:
    return [title, *(score(column.value(metrics)) for column in columns)]


def _majority_cells(majority: MajorityMetrics, columns: Sequence[Column], positive: str | None) -> list[str]:
    """Cells of always predicting the largest class."""
    of_classes: dict[str, float | None] = majority.to_dict()
    # Without alerts there is no precision, and an F1 of 0.
    always = majority.label == positive
    of_positive = {
        "recall": float(always),
        "precision": majority.accuracy if always else None,
        "f1": majority.f1_of_label if always else 0.0,
    }
    return [score((of_positive if column.of_positive else of_classes).get(column.metric)) for column in columns]


def comparison_rows(baseline: BaselineMetrics) -> list[list[str]]:
    """Rows of a table of the model against the baseline: metric, both values, their difference and its interval."""
    return [
        [
            metric_title(entry.metric),
            score(entry.model),
            score(entry.baseline),
            f"{entry.difference:+.4f}",
            f"{entry.low:+.3f} to {entry.high:+.3f}",
        ]
        for entry in baseline.comparison
    ]
