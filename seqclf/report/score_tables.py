"""Tables of scores: of the model with its intervals, of the order-blind model, of heads, and of another model."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.documents.blocks import Alerts, Block, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, score, shortened
from seqclf.evaluation.comparison import EQUAL_ALERTS, Comparison
from seqclf.evaluation.intervals import SIGNED, Interval, interval_text
from seqclf.evaluation.metrics import Metrics, ShownMetric, majority_metrics, metric_title
from seqclf.evaluation.result import ModelResult, RunResult
from seqclf.evaluation.split_result import threshold_labels
from seqclf.report.reported import Reported
from seqclf.report.verdict import row_counts, verdict_of

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
WEAKEST = 3  # classes with the lowest recall that the terminal prints
MAX_LABEL_CHARACTERS = 20  # characters of a label in a metric name or a column heading


SHOWN = [ShownMetric(name) for name in ("recall", "precision", "f1", "accuracy")]
SHOWN_OF_POSITIVE = [ShownMetric(name, True) for name in ("recall", "precision", "f1", "average_precision", "auroc")]
SHOWN_OF_POSITIVE += [ShownMetric("recall"), ShownMetric("accuracy")]


def _own(result: RunResult) -> list[ShownMetric]:
    return [ShownMetric(name, is_own=True) for name in result.metrics.own or ()]


def interval_cell(interval: Interval) -> str:
    """Format an interval as a narrow cell of the score table."""
    return interval_text(interval, to="\N{EN DASH}")


def score_table(result: RunResult) -> Table:
    """Return the table of all scores, with one row for each metric.

    First come columns of the last split (scores, intervals, order-blind baseline, majority class), then other splits.
    """
    shown = [*(SHOWN if result.positive is None else SHOWN_OF_POSITIVE), *_own(result)]
    order_blind = None if result.baseline is None else f"order-blind ({result.baseline.kind})"
    columns = _columns_of_last_split(result, shown, f"this model, {result.split}", order_blind)
    columns |= {name: _scores(block, shown) for name, block in result.splits.items() if name != result.split}
    return _table(result, shown, columns)


def weighted_section(reported: Reported) -> Section | None:
    """Return the scores by the weights of the rows, None without weights."""
    result = reported.result
    found = result.metrics.weighted if result.splits else None
    if found is None:
        return None
    shown = SHOWN if result.positive is None else SHOWN_OF_POSITIVE
    columns = {f"weighted, {result.split}": _scores(found, shown)}
    if found.intervals is not None:
        columns["between"] = [interval_cell(metric.value(found.intervals)) for metric in shown]
    if result.baseline is not None and result.baseline.weighted is not None:
        columns[f"order-blind ({result.baseline.kind})"] = _scores(result.baseline.weighted, shown)
    columns["each row counts 1"] = _scores(result.metrics, shown)
    text = (
        f"{number(round(found.effective_rows))} rows of equal weight would say as much as these {number(found.rows)}."
    )
    if found.positive is not None:
        hit = (found.positive.recall or 0.0) * found.positive.rows
        text = f"Found: {hit:,.6g} of {found.positive.rows:,.6g}, the weight of {found.positive.label}. {text}"
    return Section("By weight", [Text(text), _table(result, shown, columns)])


def short_score_table(result: RunResult) -> Table:
    """Return the table of the main scores on the last split: macro recall, the deciding metric, and accuracy.

    With a threshold, the accuracy of its alerts would mislead beside that of an argmax model, so the table has recall,
    precision and alerts of each label with a threshold, beside the order-blind model at as many alerts.
    """
    if labels := threshold_labels(result.decision, result.positive):
        return _threshold_table(result, labels)
    compared = [] if result.baseline is None else result.baseline.comparisons
    deciding = compared[0].metric if compared else "average_precision"
    of_positive = result.positive is not None and deciding == "average_precision"
    shown = list(dict.fromkeys([ShownMetric("recall"), ShownMetric(deciding, of_positive), ShownMetric("accuracy")]))
    shown += _own(result)
    return _table(result, shown, _columns_of_last_split(result, shown, "this model", "order-blind"))


def _threshold_table(result: RunResult, labels: Sequence[str]) -> Table:
    metrics, rows = result.metrics, list[tuple[str, ...]]()
    compared = () if result.baseline is None else result.baseline.comparisons
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
    rows += [(own.name, score(own.value(metrics)), NO_VALUE, NO_VALUE) for own in _own(result)]
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
    majority = majority_metrics(judged.support_by_class, judged.largest, result.positive)
    return {**columns, f"always {shortened(judged.largest, MAX_LABEL_CHARACTERS)}": _scores(majority, shown)}


def _table(result: RunResult, shown: Sequence[ShownMetric], columns: dict[str, list[str]]) -> Table:
    label = None if result.positive is None else shortened(result.positive, MAX_LABEL_CHARACTERS)
    titles = [metric_title(metric.name, label if metric.of_positive else None) for metric in shown]
    rows = list(zip(titles, *columns.values(), strict=True))
    return Table({"": "text", **score_columns(list(columns))}, rows)


def headline_section(reported: Reported) -> Section:
    """Return the verdict, the main scores, the classes with the lowest recall, and the advised action."""
    result = reported.result
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
    return Section(f"Verdict on {result.split}", blocks)


def verdict_section(reported: Reported) -> Section:
    """Return the alarms, which no reader must miss, the comparisons with other models, and the scores."""
    return Section("Verdict", _verdict_blocks(reported.result))


def card_section(reported: Reported) -> Section:
    """Return the sentences of the verdict, and the blocks of `verdict_section`."""
    if not reported.result.splits:
        return Section("Verdict", [Text("Not evaluated.")])
    verdict = verdict_of(reported.result)
    sentences = map(Text, (verdict.use, verdict.result, *verdict.answers.values()))
    return Section("Verdict", [*sentences, *_verdict_blocks(reported.result)])


def _verdict_blocks(result: RunResult) -> list[Block]:
    metrics, blocks = result.metrics, list[Block]()
    if metrics.alarms:
        blocks.append(Text("Settle this before you use the model:"))
        blocks.append(Alerts([f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms]))
    if result.baseline is not None and result.baseline.comparisons:
        text = "Against a model that ignores the order, on the same rows. The first line decides."
        rows = _comparison_rows(result.baseline.comparisons)
        blocks += [Text(text, soft=True), Table(COMPARISON_COLUMNS, rows, strong=0)]
    if result.others:
        text = "Simpler models on the same rows, also each head of the network alone, and what the network adds."
        simpler = [*([] if result.baseline is None else [result.baseline]), *result.others]
        blocks += [Text(text, soft=True), models_table(result, simpler)]
    blocks += [Text(row_counts(metrics, result.split), soft=True), score_table(result)]
    if metrics.intervals is not None:
        blocks.append(Text(BETWEEN if metrics.groups is None else BETWEEN_GROUPS, soft=True))
    return blocks


def against_section(reported: Reported) -> Section | None:
    """Return the comparison of a judged model with another one, None without one."""
    other = reported.against
    if other is None:
        return None
    intro = f"The judged model and {shortened(other.name)}, on the same {other.rows:,} rows."
    return Section("Compared", [Text(intro, soft=True), models_table(reported.result, [other]), Text(_gain(other))])


def models_table(result: RunResult, others: Sequence[ModelResult]) -> Table:
    """Return a table of the model and others. The deciding metric and what the model adds to each come first."""
    deciding = others[0].comparisons[0]
    names = [name for name in ("auroc", "accuracy", "recall", "loss") if name != deciding.metric]
    columns = {"": "text", deciding.title: "number", "adds to it": "number"}
    columns |= {"between": "number interval", **dict.fromkeys(map(metric_title, names), "number")}

    def cells(metrics: Metrics) -> list[str]:
        return [
            score((metrics.positive or metrics).auroc if name == "auroc" else getattr(metrics, name)) for name in names
        ]

    rows = [
        [shortened(other.name), score(first.baseline), *difference_cells(first), *cells(other)]
        for other in others
        for first in other.comparisons[:1]
    ]
    model = ["this model", score(deciding.model), *difference_cells(None), *cells(result.metrics)]
    return Table(columns, [model, *rows], strong=0)


def _gain(other: ModelResult) -> str:
    gain = other.comparisons[0]
    amount = f"{SIGNED(gain.difference)} {gain.title} ({interval_text((gain.low, gain.high), SIGNED)})"
    if gain.too_few_groups:
        return "Neither model is shown to be better: a class lies in one group, or nearly so."
    verdict = "better" if gain.is_better else "worse" if gain.is_worse else "not shown to be better"
    return f"The judged model is {verdict} than {shortened(other.name)}: {amount}."


def difference_cells(compared: Comparison | None) -> list[str]:
    """Return the cells of a difference and of its interval. Both are a dash without a comparison."""
    if compared is None:
        return [NO_VALUE, NO_VALUE]
    interval = None if compared.too_few_groups else (compared.low, compared.high)
    return [SIGNED(compared.difference), interval_text(interval, SIGNED)]


def score_columns(headings: Sequence[str]) -> dict[str, str]:
    """Return dict heading → kind of a score column. The kind of an interval column keeps intervals on one line."""
    return {heading: "number interval" if heading == "between" else "number" for heading in headings}


def _scores(block: Metrics, shown: Sequence[ShownMetric]) -> list[str]:
    return [score(metric.value(block)) for metric in shown]


def _comparison_rows(comparisons: Sequence[Comparison]) -> list[list[str]]:
    return [
        [
            entry.title,
            score(entry.model),
            score(entry.baseline),
            f"{entry.difference:+.4f}",
            interval_text((entry.low, entry.high), SIGNED),
        ]
        for entry in comparisons
    ]
