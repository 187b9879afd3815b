"""The table of scores, for the report and the terminal: few numbers of the model next to the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from seqclf.documents.formatting import NO_VALUE, score, shortened
from seqclf.documents.terminal import MAX_CLASSES, console
from seqclf.evaluation.group_scores import GroupScores
from seqclf.evaluation.intervals import SIGNED, Interval, interval_text
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import BaselineMetrics, MajorityMetrics, SplitMetrics
from seqclf.evaluation.run_result import RunResult
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
MAX_GROUPS = 5  # that the terminal names
MIN_LABEL_CHARACTERS = 4  # in the table of scores, however narrow the terminal is
MAX_LABEL_CHARACTERS = 20  # in the name of a metric and in the heading of the majority class


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


def interval_cell(interval: Interval) -> str:
    """An interval as a narrow cell of a table of scores."""
    return interval_text(interval, to="\N{EN DASH}")


def score_table(
    result: RunResult,
    *,
    short_headings: bool = False,
    other_splits: bool = True,
    longest_label: int = MAX_LABEL_CHARACTERS,
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of scores, with a row for each metric.

    The columns after its name are the last split and its intervals, the order-blind baseline and the majority class on
    that split, then the other splits. The three options make it narrower.
    """
    split, judged, baseline, positive = result.split, result.metrics, result.baseline, result.positive
    shown = SHOWN if judged.positive is None else SHOWN_OF_POSITIVE
    columns = {split if short_headings else f"this model, {split}": _scores(judged, shown)}
    if judged.intervals is not None:
        columns["between"] = [interval_cell(metric.value(judged.intervals)) for metric in shown]
    if baseline is not None:
        columns["order-blind" if short_headings else f"order-blind ({baseline.model})"] = _scores(baseline, shown)
    columns[f"always {shortened(judged.majority.label, longest_label)}"] = _majority_scores(
        judged.majority, shown, positive
    )
    if other_splits:
        columns |= {name: _scores(block, shown) for name, block in result.splits.items() if name != split}
    label = None if positive is None else shortened(positive, longest_label)
    titles = [metric_title(metric.name, label if metric.of_positive else None) for metric in shown]
    return list(columns), [list(row) for row in zip(titles, *columns.values(), strict=True)]


def between_note(metrics: SplitMetrics) -> str | None:
    """Return what the intervals in the table of scores say, None without any."""
    if metrics.intervals is None:
        return None
    return BETWEEN if metrics.groups is None else BETWEEN_GROUPS


def group_sentence(groups: GroupScores) -> str:
    """Return how many groups were sampled, and whether they are few."""
    if groups.unit == "sequence":
        return f"Equal sequences count as one: {groups.count:,} are different."
    few = "; so few that the intervals say little" if groups.are_few else ""
    equal = "" if groups.effective > 0.9 * groups.count else f", as many as {groups.effective:,.1f} of equal size"
    return f"The rows come in {groups.count:,} groups (data.group){equal}{few}."


def group_rows(groups: GroupScores, label: str | None) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of the worst groups. `label`: the positive one, shortened."""

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
            interval_text((entry.low, entry.high), SIGNED),
        ]
        for entry in baseline.comparison
    ]


def show_verdict(result: RunResult) -> None:
    """Print the verdict: its sentences, the metrics by split, the alarms of the last split, and the next step."""
    verdict, split, metrics = verdict_of(result), result.split, result.metrics
    console.print("Verdict", style="bold")
    console.print(verdict.use, style="bold", soft_wrap=True)
    for sentence in (verdict.result, verdict.comparison, verdict.guarantee):
        if sentence is not None:
            console.print(sentence, soft_wrap=True)
    if verdict.caution is not None:
        console.print(verdict.caution, style="yellow", soft_wrap=True)
    console.print(verdict.counts, soft_wrap=True)
    for line in score_lines(result, console.width):
        console.print(line, soft_wrap=True)
    recalls = sorted((value, label) for label, value in metrics.recall_by_class.items() if value is not None)
    lowest = ", ".join(f"{label} {value:.3f}" for value, label in recalls[:MAX_CLASSES])
    console.print(f"{split}, recall by class, the lowest first: {lowest}", soft_wrap=True)
    if metrics.groups is not None:
        _, rows = group_rows(metrics.groups, result.positive)
        worst = ", ".join(f"{name} {float(value):.3f}" for name, value, *_ in rows[:MAX_GROUPS])
        named = f" The lowest: {worst}." if worst else ""
        console.print(f"{group_sentence(metrics.groups)}{named}", soft_wrap=True)
    for alarm in metrics.alarms:
        console.print(f"ALARM on {split}: {alarm.text}. Try {alarm.remedy}", style="bold red", soft_wrap=True)
    if verdict.next_step is not None:
        console.print(verdict.next_step, soft_wrap=True)
    if result.halting is not None:
        console.print(halting_sentence(result.halting, split))


def score_lines(result: RunResult, width: int) -> list[str]:
    """Return the table of scores as lines of at most `width` columns, if that is at all possible.

    The other splits are left out first, then labels are shortened. Numbers are never cut or wrapped.
    """
    wide = score_table(result, short_headings=True)
    lines = _aligned(*wide)
    for longest_label in range(MAX_LABEL_CHARACTERS, MIN_LABEL_CHARACTERS - 1, -1):
        if cell_len(lines[0]) <= width:
            break
        narrow = score_table(result, short_headings=True, other_splits=False, longest_label=longest_label)
        lines = _aligned(*narrow)
    return lines


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for the headings and one for each row. The first column is left-aligned, the others right-aligned."""
    table = [["", *headings], *rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, *cells in table:
        padded = [" " * (width - cell_len(cell)) + cell for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([set_cell_size(name, widths[0]), *padded]))
    return lines
