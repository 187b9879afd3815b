"""The verdict of a report: one or two sentences and a table of few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqclf.evaluation.intervals import Interval
from seqclf.evaluation.results import BaselineMetrics, MajorityMetrics, SplitMetrics
from seqclf.reporting.formatting import NO_VALUE, percent, score, shortened

BETWEEN = (
    "Between: 95% confidence intervals of the scores on more data of this kind. They hold for any distribution of "
    "scores, also where no row went wrong, and are therefore wide where rows are few."
)
COLUMNS = ("recall", "precision", "f1", "accuracy")
POSITIVE_COLUMNS = ("recall", "precision", "f1", "average_precision", "auroc", "accuracy")


def headline(metrics: SplitMetrics, split: str) -> str:
    """The result in one or two sentences, with a caution where the rows are not independent of the model."""
    result = _class_result(metrics, split) if metrics.positive is None else _positive_result(metrics, split)
    caution = dependence(metrics, split)
    return result if caution is None else f"{result} {caution}"


def dependence(metrics: SplitMetrics, split: str) -> str | None:
    """A caution where the rows of a split also made choices about the model, None where they did not."""
    if not metrics.used_for:
        return None
    return (
        f"These {split} rows also chose the {' and the '.join(metrics.used_for)}, so the scores are better than new "
        "data will give; hold out a test (data.test=FILE or data.split.test=0.2) for an independent result."
    )


def _positive_result(metrics: SplitMetrics, split: str) -> str:
    positive = metrics.positive
    assert positive is not None
    intervals = None if metrics.intervals is None else metrics.intervals.positive
    between = _between(intervals.recall if intervals else None)
    label = shortened(positive.label, 40)
    if not positive.rows:
        return f"{split} has no row of {label} among {metrics.rows:,}; its recall is unknown."
    recall = f"{percent(positive.recall or 0.0)} of {label}{between}"
    if not positive.alerts:
        return f"Finds {recall} on {split}: it never predicts {label}."
    between = _between(intervals.precision if intervals else None)
    precision = f"{percent(positive.precision or 0.0)} of its alerts are right{between}"
    counts = f"{positive.alerts:,} of {metrics.rows:,} sequences are alerts, {positive.rows:,} are {label}"
    return f"Finds {recall} on {split}; {precision}. {counts}."


def _class_result(metrics: SplitMetrics, split: str) -> str:
    recalls = {label: value for label, value in metrics.recall_by_class.items() if value is not None}
    worst = min(recalls, key=lambda label: recalls[label])
    interval = None if metrics.intervals is None else metrics.intervals.accuracy
    return (
        f"Right on {percent(metrics.accuracy)}{_between(interval)} of {metrics.rows:,} {split} sequences; mean recall "
        f"over {len(recalls)} classes {percent(metrics.recall)}, the lowest {percent(recalls[worst])} "
        f"({shortened(worst, 40)})."
    )


def _between(interval: Interval) -> str:
    return "" if interval is None else f" (between {percent(interval[0])} and {percent(interval[1])})"


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
        intervals = [_in_positive_block(judged.intervals, name) for name in columns]
        rows.append(["between", *map(interval_text, intervals)])
    if baseline is not None:
        rows.append(_row(f"order-blind ({baseline.model})", baseline, columns))
    positive = None if judged.positive is None else judged.positive.label
    rows.append(
        [f"always {shortened(judged.majority.label, 20)}", *_majority_cells(judged.majority, columns, positive)]
    )
    rows += [_row(name, block, columns) for name, block in metrics.items() if name != split]
    return [name.replace("_", " ") for name in columns], rows


def _row(title: str, metrics: Any, columns: Sequence[str]) -> list[str]:
    return [title, *(score(_in_positive_block(metrics, name)) for name in columns)]


def _in_positive_block(metrics: Any, name: str) -> Any:
    """A metric or interval by name: that of the positive label where there is one, except accuracy."""
    block = metrics if metrics.positive is None or name == "accuracy" else metrics.positive
    return getattr(block, name)


def _majority_cells(majority: MajorityMetrics, columns: Sequence[str], positive: str | None) -> list[str]:
    values: dict[str, float | None] = majority.to_dict()
    if positive is not None:
        # Without alerts there is no precision, and an F1 of 0.
        always = majority.label == positive
        share = majority.accuracy if always else None
        f1 = majority.f1_of_label if always else 0.0
        values = {"recall": float(always), "precision": share, "f1": f1, "accuracy": majority.accuracy}
    return [score(values.get(name)) for name in columns]
