"""Score tables of the model and the baselines, and the verdict as blocks for the report, the terminal and the card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqclf.documents.blocks import Alerts, Block, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, probability_text, score, shortened
from seqclf.documents.terminal import show_section
from seqclf.evaluation.comparison import EQUAL_ALERTS
from seqclf.evaluation.decision import FOLDS
from seqclf.evaluation.intervals import SIGNED, Interval, interval_text
from seqclf.evaluation.metrics import ShownMetric, metric_title
from seqclf.evaluation.results import BaselineMetrics, MajorityMetrics, SplitMetrics, threshold_labels
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.target_table import CONFIDENCE, TargetRow, cost_of_picking
from seqclf.evaluation.thresholds import ROWS
from seqclf.report.ladder import ladder_blocks
from seqclf.report.verdict import CROSS_VALIDATED, row_counts, verdict_of

BETWEEN = (
    "Between: 95% confidence intervals of the scores on more data of this kind. They hold for any distribution of "
    "scores, also where no row went wrong, and are therefore wide where rows are few."
)
BETWEEN_GROUPS = (
    "Between: 95% confidence intervals of the scores on new groups of this kind. Rows of one group count for less than "
    "independent ones, as far as they are right or wrong together. There is no interval where a class lies in one "
    "group, or nearly so."
)
COMPARISON_COLUMNS = {"": "text", **dict.fromkeys(("this model", "order-blind", "difference", "between"), "number")}
PICKED = (
    "Each line is what seqclf evaluate gives for its target, on average on the left, and {confidence:.0%} sure with "
    "decision.confidence={confidence:g} on the right. A statement is for a target set before these rows were seen. "
)
COST = (
    "Picked after reading, the worst line on the left misses its target by {shortfall:.3f} on average over such "
    "samples, and some line on the right misses its target in {missed:.0%} of them."
)
NO_COST = "What a pick after reading costs is not known for a precision."
IN_ROWS = " * Reached by these rows alone: they are too few for a statement on average."
WEAKEST = 3  # classes with the lowest recall that the terminal prints
MAX_LABEL_CHARACTERS = 20  # characters of a label in a metric name or a column heading


SHOWN = [ShownMetric(name) for name in ("recall", "precision", "f1", "accuracy")]
SHOWN_OF_POSITIVE = [ShownMetric(name, True) for name in ("recall", "precision", "f1", "average_precision", "auroc")]
SHOWN_OF_POSITIVE += [ShownMetric("recall"), ShownMetric("accuracy")]


def interval_cell(interval: Interval) -> str:
    """Format an interval as a narrow cell of the score table."""
    return interval_text(interval, to="\N{EN DASH}")


def score_table(result: RunResult) -> Table:
    """Return the table of all scores, with one row for each metric.

    First come columns of the last split (scores, intervals, order-blind baseline, majority class), then other splits.
    """
    shown = SHOWN if result.positive is None else SHOWN_OF_POSITIVE
    order_blind = None if result.baseline is None else f"order-blind ({result.baseline.model})"
    columns = _columns_of_last_split(result, shown, f"this model, {result.split}", order_blind)
    columns |= {name: _scores(block, shown) for name, block in result.splits.items() if name != result.split}
    return _table(result, shown, columns)


def short_score_table(result: RunResult) -> Table:
    """Return the table of the main scores on the last split: macro recall, the deciding metric, and accuracy.

    With a threshold, the accuracy of its alerts would mislead beside that of an argmax model, so the table has recall,
    precision and alerts of each label with a threshold, beside the order-blind model at as many alerts.
    """
    if labels := threshold_labels(result.decision, result.positive):
        return _threshold_table(result, labels)
    compared = [] if result.baseline is None else result.baseline.comparison
    deciding = compared[0].metric if compared else "average_precision"
    of_positive = result.positive is not None and deciding == "average_precision"
    shown = list(dict.fromkeys([ShownMetric("recall"), ShownMetric(deciding, of_positive), ShownMetric("accuracy")]))
    return _table(result, shown, _columns_of_last_split(result, shown, "this model", "order-blind"))


def _threshold_table(result: RunResult, labels: Sequence[str]) -> Table:
    metrics, rows = result.metrics, list[tuple[str, ...]]()
    compared = () if result.baseline is None else result.baseline.comparison
    equal = {entry.label or result.positive: entry for entry in compared if entry.metric == EQUAL_ALERTS}
    for label in labels:
        index = result.classes.index(label)
        alerts = sum(row[index] for row in metrics.confusion)
        known = None if metrics.intervals is None else metrics.intervals.positive
        intervals: tuple[Interval, ...] = (None, None, None)
        if known is not None and label == result.positive:
            intervals = known.recall, known.precision, known.alerts
        elif metrics.intervals is not None:
            intervals = metrics.intervals.recall_by_class.get(label), None, None
        name, per_1000 = shortened(label, MAX_LABEL_CHARACTERS), number(1000 * alerts / metrics.rows)
        others: tuple[float | None, float | None] = (None, None)
        if (entry := equal.get(label)) is not None:
            others = entry.baseline, entry.baseline / (entry.alerts_per_positive or 1.0)
        limits = interval_text(intervals[2], lambda share: f"{1000 * share:.1f}", "\N{EN DASH}")
        of_label = metrics.recall_by_class[label], metrics.precision_by_class[label]
        for place, metric in enumerate(("recall", "precision")):
            cells = score(of_label[place]), interval_cell(intervals[place]), score(others[place])
            rows.append((f"{metric} of {name}", *cells))
        rows.append((f"alerts for {name} per 1,000", per_1000, limits, NO_VALUE if entry is None else per_1000))
    headings = ["this model", "between", "order-blind, as many alerts"]
    return Table({"": "text", **score_columns(headings)}, rows)


def _columns_of_last_split(
    result: RunResult, shown: Sequence[ShownMetric], model: str, order_blind: str | None
) -> dict[str, list[str]]:
    """Return dict heading → cells. `model`, `order_blind`: headings of the model and of the baseline, if any."""
    judged, baseline = result.metrics, result.baseline
    columns = {model: _scores(judged, shown)}
    if judged.intervals is not None:
        columns["between"] = [interval_cell(metric.value(judged.intervals)) for metric in shown]
    if baseline is not None and order_blind is not None:
        columns[order_blind] = _scores(baseline, shown)
    always = f"always {shortened(judged.majority.label, MAX_LABEL_CHARACTERS)}"
    return {**columns, always: _majority_scores(judged.majority, shown, result.positive)}


def _table(result: RunResult, shown: Sequence[ShownMetric], columns: dict[str, list[str]]) -> Table:
    label = None if result.positive is None else shortened(result.positive, MAX_LABEL_CHARACTERS)
    titles = [metric_title(metric.name, label if metric.of_positive else None) for metric in shown]
    rows = list(zip(titles, *columns.values(), strict=True))
    return Table({"": "text", **score_columns(list(columns))}, rows)


def verdict_blocks(result: RunResult) -> list[Block]:
    """Return the alarms, which no reader must miss, the comparison with the baseline, the ladder and the scores."""
    metrics, blocks = result.metrics, list[Block]()
    if metrics.alarms:
        blocks.append(Text("Settle this before you use the model:"))
        blocks.append(Alerts([f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms]))
    if result.baseline is not None and (compared := comparison_rows(result.baseline)):
        text = "Against a model that ignores the order, on the same rows. The first line decides."
        blocks += [Text(text, soft=True), Table(COMPARISON_COLUMNS, compared, strong=0)]
    blocks += ladder_blocks(result)
    blocks += [Text(row_counts(metrics, result.split), soft=True), score_table(result)]
    if (note := between_note(metrics)) is not None:
        blocks.append(Text(note, soft=True))
    return blocks


def target_blocks(result: RunResult) -> list[Block]:
    """Return the table of targets of each guarantee, and a sentence about what a pick from the table costs."""
    blocks: list[Block] = []
    for asked in result.decision.targets:
        if not (rows := [row for row in result.targets if (row.rule, row.label) == (asked.rule, asked.label)]):
            continue
        confidence = next((row.confidence for row in rows if row.confidence is not None), CONFIDENCE)
        lines: dict[float, dict[bool, TargetRow]] = {}
        for row in rows:
            lines.setdefault(row.target, {})[row.confidence is not None] = row
        cells = [
            (
                f"{target:g}{' (this run)' if any(row.asked for row in line.values()) else ''}",
                *_cells(line.get(False)),
                *_cells(line.get(True)),
            )
            for target, line in lines.items()
        ]
        sure = f", {confidence:.0%} sure"
        columns = {f"decision.{asked.rule}": "text"} | {
            f"{name}{end}": "number"
            for end in ("", sure)
            for name in ("threshold", "alerts per 1,000", "precision", "recall")
        }
        caption = f"Targets for {shortened(asked.label, MAX_LABEL_CHARACTERS)} on the rows that set the threshold"
        place = next(
            (place for place, line in enumerate(lines.values()) if any(row.asked for row in line.values())), None
        )
        blocks.append(Table(columns, cells, place, caption=caption))
        cost = cost_of_picking(rows, asked, len(result.decision.targets))
        text = PICKED.format(confidence=confidence)
        text += NO_COST if cost is None else COST.format(shortfall=cost[0], missed=cost[1])
        text += f" Estimates by cross-validation: {CROSS_VALIDATED}." if asked.basis == FOLDS else ""
        text += IN_ROWS if any(row.statement == ROWS for row in rows) else ""
        blocks.append(Text(text, soft=True))
    return blocks


def forcing_blocks(result: RunResult) -> list[Block]:
    """Return a table of the rows that force the threshold of a recall, an empty list without a recall target."""
    if not result.forcing:
        return []
    columns = {"row": "text", "label": "text", **dict.fromkeys(("score", "alerts per 1,000", "without it"), "number")}
    cells = [
        (
            *(shortened(row.id, 40), shortened(row.label, MAX_LABEL_CHARACTERS), probability_text(row.score)),
            *(number(row.alerts_per_1000), number(row.without_it), "check the label" if row.check_label else ""),
        )
        for row in result.forcing
    ]
    caption = "Rows with a target label and the lowest scores, and the alerts without each (threshold.parquet)"
    return [Table({**columns, "": "text"}, cells, caption=caption)]


def _cells(row: TargetRow | None) -> tuple[str, ...]:
    if row is None:
        return ("\N{EN DASH}",) * 4
    threshold = probability_text(row.threshold) + ("*" if row.statement == ROWS else "")
    return threshold, number(row.alerts_per_1000), score(row.precision), score(row.recall)


def between_note(metrics: SplitMetrics) -> str | None:
    """Return a note that explains the intervals in the score table, or None if the table has no intervals."""
    if metrics.intervals is None:
        return None
    return BETWEEN if metrics.groups is None else BETWEEN_GROUPS


def score_columns(headings: Sequence[str]) -> dict[str, str]:
    """Return dict heading → kind of a score column. The kind of an interval column keeps intervals on one line."""
    return {heading: "number interval" if heading == "between" else "number" for heading in headings}


def _scores(block: Any, shown: Sequence[ShownMetric]) -> list[str]:
    return [score(metric.value(block)) for metric in shown]


def _majority_scores(majority: MajorityMetrics, shown: Sequence[ShownMetric], positive: str | None) -> list[str]:
    of_classes: dict[str, float | None] = majority.to_dict()
    # Without alerts, precision is undefined and F1 is 0.
    always = majority.label == positive
    of_positive = {
        "recall": float(always),
        "precision": majority.accuracy if always else None,
        "f1": majority.f1_of_label if always else 0.0,
    }
    return [score((of_positive if metric.of_positive else of_classes).get(metric.name)) for metric in shown]


def comparison_rows(baseline: BaselineMetrics) -> list[list[str]]:
    """Return table rows that compare model and baseline: metric, both scores, their difference and its interval."""
    return [
        [
            entry.title,
            score(entry.model),
            score(entry.baseline),
            f"{entry.difference:+.4f}",
            interval_text((entry.low, entry.high), SIGNED),
        ]
        for entry in baseline.comparison
    ]


def show_verdict(result: RunResult) -> None:
    """Print the verdict, the main scores, the classes with the lowest recall, and the advised action."""
    verdict, metrics = verdict_of(result), result.metrics
    recalls = sorted((value, label) for label, value in metrics.recall_by_class.items() if value is not None)
    weakest = ", ".join(
        f"{shortened(label, MAX_LABEL_CHARACTERS)} {value:.3f} ({metrics.support_by_class[label]:,} rows)"
        for value, label in recalls[:WEAKEST]
    )
    use, *sentences = verdict.headline
    blocks = [
        Text(use, style="bold"),
        *map(Text, sentences),
        short_score_table(result),
        None if threshold_labels(result.decision, result.positive) else Text(f"lowest recall by class: {weakest}"),
        None if verdict.next_step is None else Text(f"Next: {verdict.next_step}"),
    ]
    show_section(Section(f"Verdict on {result.split}", blocks))
