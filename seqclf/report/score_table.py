"""The verdict as blocks for the report, the terminal and the model card: scores of the model and the baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from seqclf.documents.blocks import Alerts, Block, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, probability_text, score, shortened
from seqclf.documents.terminal import MAX_CLASSES, show_section
from seqclf.evaluation.group_scores import GroupScores
from seqclf.evaluation.intervals import SIGNED, Interval, interval_text
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import BaselineMetrics, MajorityMetrics, SplitMetrics
from seqclf.evaluation.run_result import RunResult
from seqclf.report.ladder import ladder_blocks
from seqclf.report.verdict import halting_sentence, verdict_of

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
TARGET_COLUMNS = dict.fromkeys(("threshold", "alerts per 1,000", "precision", "recall", "backed"), "number")
ALONE = "{0.target:g} was set before these rows were seen, and holds with {0.confidence:.0%} confidence by itself. "
PICKED = (
    "All other backed targets hold together with {:.0%} confidence, so pick any of them: train with that target and "
    "decision.confidence={:.4f}."
)
UNBACKED = " Targets that the rows do not back stand at the threshold at which they reach them, without a guarantee."
MAX_TARGETS = 5  # rows of a table of targets that the terminal prints
MAX_GROUPS = 5  # groups that the terminal prints
MAX_LABEL_CHARACTERS = 20  # characters of a label in a metric name or a column heading


class ShownMetric(NamedTuple):
    """A row of the score table: the name of a metric, and True if it is a metric of the positive label alone."""

    name: str
    of_positive: bool = False

    def value(self, block: Any) -> Any:
        """Return the metric's value, or its interval if `block` holds intervals."""
        return getattr(block.positive if self.of_positive else block, self.name)


SHOWN = [ShownMetric(name) for name in ("recall", "precision", "f1", "accuracy")]
SHOWN_OF_POSITIVE = [ShownMetric(name, True) for name in ("recall", "precision", "f1", "average_precision", "auroc")]
SHOWN_OF_POSITIVE += [ShownMetric("recall"), ShownMetric("accuracy")]


def interval_cell(interval: Interval) -> str:
    """Format an interval as a narrow cell of the score table."""
    return interval_text(interval, to="\N{EN DASH}")


def score_table(result: RunResult, short_headings: bool = False) -> Table:
    """Return the score table, with one row for each metric.

    The first columns are about the last split: the model's scores, their intervals, the order-blind baseline and the
    majority class. The model's scores on the other splits follow, because a narrow terminal drops the last columns.
    """
    split, judged, baseline, positive = result.split, result.metrics, result.baseline, result.positive
    shown = SHOWN if judged.positive is None else SHOWN_OF_POSITIVE
    columns = {split if short_headings else f"this model, {split}": _scores(judged, shown)}
    if judged.intervals is not None:
        columns["between"] = [interval_cell(metric.value(judged.intervals)) for metric in shown]
    if baseline is not None:
        columns["order-blind" if short_headings else f"order-blind ({baseline.model})"] = _scores(baseline, shown)
    always = f"always {shortened(judged.majority.label, MAX_LABEL_CHARACTERS)}"
    columns[always] = _majority_scores(judged.majority, shown, positive)
    columns |= {name: _scores(block, shown) for name, block in result.splits.items() if name != split}
    label = None if positive is None else shortened(positive, MAX_LABEL_CHARACTERS)
    titles = [metric_title(metric.name, label if metric.of_positive else None) for metric in shown]
    rows = list(zip(titles, *columns.values(), strict=True))
    return Table({"": "text", **score_columns(list(columns))}, rows, stacked=True)


def verdict_blocks(result: RunResult) -> list[Block]:
    """Return the alarms, the comparison with the baseline, the ladder and the score table.

    The alarms come first, so that no reader trusts the scores below without reading the alarms.
    """
    verdict, metrics, blocks = verdict_of(result), result.metrics, list[Block]()
    if metrics.alarms:
        blocks.append(Text("Settle this before you use the model:"))
        blocks.append(Alerts([f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms]))
    if result.baseline is not None and (compared := comparison_rows(result.baseline)):
        text = "Against a model that ignores the order, on the same rows. The first line decides."
        blocks += [Text(text, soft=True), Table(COMPARISON_COLUMNS, compared, strong=0, stacked=True)]
    blocks += ladder_blocks(result)
    blocks += [Text(verdict.counts, soft=True), score_table(result)]
    if (note := between_note(metrics)) is not None:
        blocks.append(Text(note, soft=True))
    return blocks


def group_blocks(result: RunResult) -> list[Block]:
    """Return a sentence about the number of groups and a table of the worst groups, or no block without groups."""
    groups = result.metrics.groups
    if groups is None:
        return []
    sentence = Text(group_sentence(groups), soft=True)
    if not groups.worst:
        return [sentence]
    label = None if result.positive is None else shortened(result.positive, MAX_LABEL_CHARACTERS)
    headings, rows = group_rows(groups, label)
    caption = f"The {number(len(rows))} groups of the lowest scores beyond chance, of {number(groups.count)}"
    return [sentence, Table({headings[0]: "text", **score_columns(headings[1:])}, rows, caption=caption)]


def target_blocks(result: RunResult, most: int | None = None) -> list[Block]:
    """Return the table of targets of each guarantee, and a sentence about its confidence.

    `most`: maximum number of rows, around the configured target; None for all rows.
    """
    blocks: list[Block] = []
    for asked in result.decision.targets:
        if not (rows := [row for row in result.targets if row.label == asked.label]):
            continue
        place = next(number for number, row in enumerate(rows) if row.asked)
        start = 0 if most is None else max(0, min(place - most // 2, len(rows) - most))
        cells = [
            (
                f"{row.target:g}{' (this run)' if row.asked else ''}",
                *(probability_text(row.threshold), number(row.alerts_per_1000), score(row.precision)),
                *(score(row.recall), "yes" if row.backed else "no"),
            )
            for row in rows[start : None if most is None else start + most]
        ]
        columns = {f"decision.{asked.rule}": "text", **TARGET_COLUMNS}
        caption = f"Targets for {shortened(asked.label, MAX_LABEL_CHARACTERS)} on held-out rows"
        blocks.append(Table(columns, cells, place - start, caption=caption))
        # Rounded up, because a lower confidence would give another threshold.
        joint = {math.ceil(1e4 * row.confidence - 1e-6) / 1e4 for row in rows if row.backed and not row.asked}
        others = PICKED.format(asked.confidence, *joint) if joint else ""
        others += "" if all(row.backed for row in rows) else UNBACKED
        blocks.append(Text((ALONE.format(asked) if asked.backed else "") + others, soft=True))
    return blocks


def between_note(metrics: SplitMetrics) -> str | None:
    """Return a note that explains the intervals in the score table, or None if the table has no intervals."""
    if metrics.intervals is None:
        return None
    return BETWEEN if metrics.groups is None else BETWEEN_GROUPS


def group_sentence(groups: GroupScores) -> str:
    """Return a sentence with the number of groups and a remark if the groups are too few for useful intervals."""
    if groups.unit == "sequence":
        return f"Equal sequences count as one: {groups.count:,} are different."
    few = "; so few that the intervals say little" if groups.are_few else ""
    equal = "" if groups.effective > 0.9 * groups.count else f", as many as {groups.effective:,.1f} of equal size"
    return f"The rows come in {groups.count:,} groups (data.group){equal}{few}."


def group_rows(groups: GroupScores, label: str | None) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of worst groups. `label`: the shortened positive label, or None."""

    def share(hits: int | None, rows: int | None) -> str:
        return NO_VALUE if not rows or hits is None else score(hits / rows)

    headings = ["group", "accuracy", "rows"]
    rows = [[shortened(entry.group, 40), share(entry.hits, entry.rows), f"{entry.rows:,}"] for entry in groups.worst]
    if label is not None:
        headings[1:1] = [metric_title("recall", label), f"rows of {label}"]
        for cells, entry in zip(rows, groups.worst, strict=True):
            cells[1:1] = [share(entry.positive_hits, entry.positive_rows), f"{entry.positive_rows or 0:,}"]
    return headings, rows


def score_columns(headings: Sequence[str]) -> dict[str, str]:
    """Return dict heading → kind of a score column. The kind of an interval column keeps intervals on one line."""
    return {heading: "number interval" if heading == "between" else "number" for heading in headings}


def _scores(block: Any, shown: Sequence[ShownMetric]) -> list[str]:
    return [score(metric.value(block)) for metric in shown]


def _majority_scores(majority: MajorityMetrics, shown: Sequence[ShownMetric], positive: str | None) -> list[str]:
    """Return the scores of a model that always predicts the largest class."""
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


def _worst_groups(groups: GroupScores, positive: str | None) -> str:
    """Return one line with the number of groups and the groups with the lowest scores."""
    worst = ", ".join(f"{name} {float(value):.3f}" for name, value, *_ in group_rows(groups, positive)[1][:MAX_GROUPS])
    return f"{group_sentence(groups)}{f' The lowest: {worst}.' if worst else ''}"


def show_verdict(result: RunResult) -> None:
    """Print the verdict sentences, the scores of each split, the alarms of the last split and the advised action."""
    verdict, split, metrics = verdict_of(result), result.split, result.metrics
    recalls = sorted((value, label) for label, value in metrics.recall_by_class.items() if value is not None)
    lowest = ", ".join(f"{label} {value:.3f}" for value, label in recalls[:MAX_CLASSES])
    alarms = [f"ALARM on {split}: {alarm.text}. Try {alarm.remedy}" for alarm in metrics.alarms]
    halting = None if result.halting is None else halting_sentence(result.halting, split)
    stated = (verdict.result, verdict.comparison, verdict.guarantee, verdict.training)
    sentences = [Text(sentence) for sentence in stated if sentence]
    blocks = [
        Text(verdict.use, style="bold"),
        *sentences,
        *target_blocks(result, MAX_TARGETS),
        *ladder_blocks(result),
        Text(verdict.caution, style="yellow") if verdict.caution is not None else None,
        Text(verdict.counts),
        score_table(result, short_headings=True),
        Text(f"{split}, recall by class, the lowest first: {lowest}"),
        None if metrics.groups is None else Text(_worst_groups(metrics.groups, result.positive)),
        Alerts(alarms, style="bold red"),
        Text(verdict.next_step) if verdict.next_step is not None else None,
        Text(halting) if halting is not None else None,
    ]
    show_section(Section("Verdict", blocks))
