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
LONGEST_LABEL = 20  # in the name of a metric and in the heading of the majority class


class ShownMetric(NamedTuple):
    """A row of the table of scores: a metric of the positive label, or of all classes."""

    name: str
    of_positive: bool = False

    def value(self, block: Any) -> Any:
        """The metric in a block of metrics or of intervals."""
        return getattr(block.positive if self.of_positive else block, self.name)


SHOWN = [ShownMetric(name) for name in ("recall", "precision", "f1", "accuracy")]
SHOWN_OF_POSITIVE = [ShownMetric(name, True) for name in ("recall", "precision", "f1", "average_precision", "auroc")]
SHOWN_OF_POSITIVE += [ShownMetric("recall"), ShownMetric("accuracy")]


def interval_text(interval: Interval) -> str:
    """An interval as a table cell."""
    return NO_VALUE if interval is None else f"{interval[0]:.3f}\N{EN DASH}{interval[1]:.3f}"


def score_table(
    metrics: Mapping[str, SplitMetrics],
    baseline: BaselineMetrics | None,
    *,
    short_headings: bool = False,
    other_splits: bool = True,
    longest_label: int = LONGEST_LABEL,
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of scores, with a row for each metric.

    The columns after its name are the last split and its intervals, the order-blind baseline and the majority class on
    that split, then the other splits. The three options make it narrower.
    """
    split = list(metrics)[-1]
    judged = metrics[split]
    shown = SHOWN if judged.positive is None else SHOWN_OF_POSITIVE
    columns = {split if short_headings else f"this model, {split}": _scores(judged, shown)}
    if judged.intervals is not None:
        columns["between"] = [interval_text(metric.value(judged.intervals)) for metric in shown]
    if baseline is not None:
        columns["order-blind" if short_headings else f"order-blind ({baseline.model})"] = _scores(baseline, shown)
    positive = None if judged.positive is None else judged.positive.label
    columns[f"always {shortened(judged.majority.label, longest_label)}"] = _majority_scores(
        judged.majority, shown, positive
    )
    if other_splits:
        columns |= {name: _scores(block, shown) for name, block in metrics.items() if name != split}
    label = None if positive is None else shortened(positive, longest_label)
    titles = [metric_title(metric.name, label if metric.of_positive else None) for metric in shown]
    return list(columns), [list(row) for row in zip(titles, *columns.values(), strict=True)]


def score_columns(headings: Sequence[str]) -> dict[str, str]:
    """Kinds of the columns of a page's table of scores. An interval stays on one line."""
    return {heading: "number interval" if heading == "between" else "number" for heading in headings}


def _scores(block: Any, shown: Sequence[ShownMetric]) -> list[str]:
    return [score(metric.value(block)) for metric in shown]


def _majority_scores(majority: MajorityMetrics, shown: Sequence[ShownMetric], positive: str | None) -> list[str]:
    """Scores of always predicting the largest class."""
    of_classes: dict[str, float | None] = majority.to_dict()
    # Without alerts there is no precision, and an F1 of 0.
    always = majority.label == positive
    of_positive = {
        "recall": float(always),
        "precision": majority.accuracy if always else None,
        "f1": majority.f1_of_label if always else 0.0,
    }
    return [score((of_positive if metric.of_positive else of_classes).get(metric.name)) for metric in shown]


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
