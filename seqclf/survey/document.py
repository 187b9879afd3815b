"""A dataset survey as a document for a page or the terminal, for readers who have not seen the data yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from seqclf.documents.blocks import Bar, Block, Document, Folded, Heading, Section, Spark, Table, Text, bar
from seqclf.documents.formatting import NO_VALUE, label_text, listed, number, percent, plain_number, score, shortened
from seqclf.evaluation.metrics import ClassificationMetrics, metric_title
from seqclf.survey.class_counts import ClassCounts
from seqclf.survey.fields import ChannelSpread, FieldStatistics
from seqclf.survey.guarantees import GuaranteeSurvey
from seqclf.survey.lengths import LengthSummary
from seqclf.survey.survey import DatasetSurvey
from seqclf.survey.target_leakage import ColumnLeakage
from seqclf.survey.values import TokenRate, TokenRates, ValueDistribution, ValueQuantiles

MAX_FIELDS = 30
MAX_COLUMNS = 4  # up to this number of classes, tables of token rates have a column for each class
MAX_ROW_CHARACTERS = 500  # maximum number of printed characters of an example row
MAJORITY = "majority class"
SPREAD_HEADINGS = ("range", "within", "p95/p5", "between")
UNITS = {"row": "rows", "group": "groups", "sequence": "different sequences"}
PERCENTILES = ("p5", "p50", "p95", "max")
LEVELS = {"p5": "p5", "p50": "median", "p95": "p95"}  # attribute of ValueQuantiles → column heading


def survey_document(survey: DatasetSurvey) -> Document:
    """Return the document that the command `describe` shows."""
    sections = [
        _classes(survey),
        _lengths(survey),
        _examples(survey),
        _tokens(survey),
        _values(survey),
        _padding(survey),
        _truncation(survey),
        _fields(survey),
        _leaks(survey),
        _leakage(survey),
        _baseline(survey),
        _splits(survey),
    ]
    return Document(
        shortened(survey.name),
        survey_summary(survey),
        [section for section in sections if section is not None],
        alerts=survey.warnings,
        no_alerts="Nothing stood out that should be looked at before training.",
    )


def survey_summary(survey: DatasetSurvey) -> str:
    """Return one sentence with the number of sequences, the range of lengths and the largest class."""
    lengths, largest = survey.lengths.all_rows, _by_size(survey)[0]
    length_range = f"{number(lengths.min)} to {number(lengths.max)} tokens, half of them at most {number(lengths.p50)}"
    return (
        f"{number(lengths.rows)} sequences in {number(len(survey.classes))} classes, of {length_range}; the largest "
        f"class, {label_text(largest.label, 40)}, holds {percent(largest.share)} of them."
    )


def _by_size(survey: DatasetSurvey) -> list[ClassCounts]:
    return sorted(survey.classes, key=lambda counts: -counts.share)


# Sections about classes and lengths


def _classes(survey: DatasetSurvey) -> Section:
    splits, classes = list(survey.rows), _by_size(survey)
    rows = [
        [
            label_text(counts.label, 40) + (" (positive)" if counts.label == survey.positive else ""),
            bar(counts.share / classes[0].share),
            percent(counts.share),
            *(number(counts.rows[split]) for split in splits),
        ]
        for counts in classes
    ]
    columns = {"class": "text", "": "bar", "share": "number", **dict.fromkeys(splits, "number")}
    guarantees = [] if survey.guarantees is None else _guarantees(survey, survey.guarantees)
    return Section("Classes", [Text(_imbalance(survey)), Table(columns, rows), *guarantees])


def _imbalance(survey: DatasetSurvey) -> str:
    train_rows = [counts.rows["train"] for counts in survey.classes]
    if not min(train_rows):
        return "At least one class has no training row."
    if min(train_rows) == max(train_rows):
        return "All classes have the same number of training rows."
    ratio = number(max(train_rows) / min(train_rows))
    return f"The largest class has {ratio} training rows for each of the smallest."


def _guarantees(survey: DatasetSurvey, guarantees: GuaranteeSurvey) -> list[Block]:
    """Return a table that shows for each label whether there are enough held-out units to guarantee a recall.

    A unit is a row, a group or a distinct sequence. The label with the fewest held-out units comes first. If there is a
    positive label, the table has only this label.
    """

    def verdict(recall: float, held_out: int, backed: bool) -> str:
        needed = guarantees.needed[recall]
        return "enough" if backed else "too few" if needed is None else f"{needed - held_out} too few"

    needed = [f"{count} for {recall}" for recall, count in guarantees.needed.items() if count]
    unit = UNITS[guarantees.unit]
    rows = [
        [
            label_text(entry.label, 40),
            number(entry.held_out),
            *(verdict(recall, entry.held_out, backed) for recall, backed in entry.backed.items()),
        ]
        for entry in guarantees.labels
        if survey.positive in (None, entry.label)
    ]
    columns = dict.fromkeys([f"held-out {unit}", *(f"for {recall}" for recall in guarantees.needed)], "number")
    return [
        Heading("Guarantees"),
        Text(
            f"To guarantee the recall of a class (decision.min_recall, {100 * guarantees.confidence:g}% sure), "
            f"validation must hold out enough of its {unit}: {', '.join(needed)}; training holds out "
            f"{percent(guarantees.holdout)} of its rows (decision.holdout). Of rows in groups, and of equal sequences "
            "that are split together, one counts."
        ),
        Table({"class": "text", **columns}, rows),
    ]


def _lengths(survey: DatasetSurvey) -> Section:
    lengths = survey.lengths
    overall = lengths.all_rows
    position = _axis_position(overall)

    def row(label: str, summary: LengthSummary) -> list[object]:
        strip = Bar(position(summary.p5), position(summary.p95), position(summary.p50))
        return [label, strip, *(number(getattr(summary, name)) for name in PERCENTILES)]

    labels = [counts.label for counts in _by_size(survey) if counts.label in lengths.by_class]
    rows = [row("all rows", overall), *(row(label_text(label, 40), lengths.by_class[label]) for label in labels)]
    columns = {"class": "text", "p5 to p95, and median": "bar", **dict.fromkeys(PERCENTILES, "number")}
    cut = "Lengths are those before the cut to max_length." if any(survey.truncation.cut_rows.values()) else ""
    notes = [Text(cut, soft=True, page_only=True)] if cut else []
    return Section("Lengths", [*notes, Table(columns, rows, strong=0)])


def _axis_position(overall: LengthSummary) -> Callable[[float], float]:
    """Return a function that maps a length to a position between 0 (shortest length) and 1 (longest length).

    The axis is logarithmic if the longest length is more than 20 times the shortest.
    """
    scale = math.log if overall.max > 20 * overall.min else float
    low, high = scale(overall.min), scale(overall.max)
    return lambda length: (scale(length) - low) / ((high - low) or 1)


# Sections about example rows, tokens and values


def _examples(survey: DatasetSurvey) -> Section | None:
    rows = [
        [label_text(row.label, 40), number(row.length), shortened(row.text, MAX_ROW_CHARACTERS)]
        for row in survey.examples
    ]
    text = (
        "Training rows drawn at random, as the model reads them; ? is a value that is not in the vocabulary, and a "
        "number in parentheses replaces a missing value."
    )
    table = Table({"class": "text", "tokens": "number", "row": "text"}, rows, stacked=True)
    return Section("Example rows", [Text(text, soft=True), table]) if rows else None


def _tokens(survey: DatasetSurvey) -> Section | None:
    blocks = [
        block
        for name, rates in list(survey.tokens.items())[:MAX_FIELDS]
        if rates.frequent
        for block in _token_blocks(name, rates, survey)
    ]
    text = "Values that a class uses clearly more often than the other classes, with their share of its tokens."
    return Section("Typical and frequent tokens", [Text(text, soft=True), *blocks]) if blocks else None


def _token_blocks(name: str, rates: TokenRates, survey: DatasetSurvey) -> Iterator[Block]:
    yield Heading(shortened(name))
    typical = [
        [label_text(label, 40), ", ".join(typical_text(rate, label) for rate in values) or "none"]
        for label, values in rates.typical.items()
    ]
    yield Table({"class": "text", "more often than in other classes": "text"}, typical)
    shown = list(rates.frequent[0].rates) if len(survey.classes) <= MAX_COLUMNS else []
    headings = ["of all", *(f"in {label_text(label, 20)}" for label in shown)]
    rows = [
        [shortened(rate.value, 40), percent(rate.share), *(percent(rate.rates[label]) for label in shown)]
        for rate in rates.frequent
    ]
    table = Table({"value": "text", **dict.fromkeys(headings, "number")}, rows)
    yield Folded("The most frequent values", [table], page_only=True)


def typical_text(rate: TokenRate, label: str) -> str:
    """Format a typical value with its frequency among the tokens of class `label`.

    >>> typical_text(TokenRate("awful", 0.001, {"bad": 0.002}), "bad")
    'awful 0.2%'
    """
    return f"{shortened(rate.value, 30)} {percent(rate.rates[label])}"


def _values(survey: DatasetSurvey) -> Section | None:
    blocks = [
        block
        for name, channels in list(survey.values.items())[:MAX_FIELDS]
        if channels
        for block in _value_blocks(name, channels)
    ]
    text = (
        "Training values in the units of the data. The height of a bar is the square root of its count, so that rare "
        "values can be seen; the outer bars hold the values beyond them too."
    )
    return Section("Value distributions", [Text(text, soft=True, page_only=True), *blocks]) if blocks else None


def _value_blocks(name: str, channels: Mapping[str, ValueDistribution]) -> Iterator[Block]:
    unit = "seconds since the token before" if next(iter(channels.values())).unit == "s" else "values"
    yield Heading(f"{shortened(name)}: {unit}")
    levels = dict.fromkeys(LEVELS.values(), "number")
    rows = [
        [
            shortened(channel, 40),
            Spark(distribution.counts) if distribution.counts else "one value",
            *_levels(distribution.all_rows),
        ]
        for channel, distribution in channels.items()
    ]
    yield Table({"channel": "text", "distribution": "text", **levels}, rows, folded="Each channel")
    by_class: list[Sequence[object]] = []
    for channel, distribution in channels.items():
        if len(distribution.by_class) > 1:
            for position, (label, quantiles) in enumerate(distribution.by_class.items()):
                title = "" if position else shortened(channel, 40)
                strip = _strip(quantiles, distribution)
                by_class.append([title, label_text(label, 40), strip, *_levels(quantiles)])
    if by_class:
        table = Table({"channel": "text", "class": "text", "": "bar", **levels}, by_class)
        title = "By class: from the 5% to the 95% quantile, with a mark at the median"
        yield Folded(title, [table], page_only=True)


def _levels(quantiles: ValueQuantiles) -> list[str]:
    """Return the 5 % quantile, the median and the 95 % quantile as texts for table cells."""
    values = (getattr(quantiles, level) for level in LEVELS)
    return [NO_VALUE if value is None else plain_number(value) for value in values]


def _strip(quantiles: ValueQuantiles, distribution: ValueDistribution) -> Bar:
    """Return a bar from the 5 % quantile to the 95 % quantile of one class, with a tick at the median.

    The axis starts at the lowest 5 % quantile of all classes and ends at the highest 95 % quantile of all classes.
    """
    ends = [end for entry in distribution.by_class.values() for end in (entry.p5, entry.p95) if end is not None]
    if quantiles.p5 is None or quantiles.p95 is None or quantiles.p50 is None:
        return Bar(0.0, 0.0)
    low, high = min(ends), max(ends)
    start, end, mark = ((level - low) / ((high - low) or 1.0) for level in (quantiles.p5, quantiles.p95, quantiles.p50))
    return Bar(start, end, mark)


# Sections about padding, truncation and fields


def _padding(survey: DatasetSurvey) -> Section:
    batches = survey.batches
    shares = {
        "batches of similar lengths": batches.padding_efficiency,
        "everything padded to the longest": batches.padding_efficiency_static,
    }
    text = (
        f"Share of what is computed that is sequence and not padding, in {number(batches.batches)} batches of "
        f"{number(batches.rows_per_batch)} rows each epoch."
    )
    rows = [[name, bar(share), percent(share)] for name, share in shares.items()]
    return Section("Padding", [Text(text), Table({"": "text", " ": "bar", "sequence": "number"}, rows)])


def _truncation(survey: DatasetSurvey) -> Section:
    truncation = survey.truncation
    text = "no limit on the length (max_length=null)"
    if truncation.max_length is not None:
        cut_rows = ", ".join(f"{count:,} of {name}" for name, count in truncation.cut_rows.items() if count)
        text = f"max_length={truncation.max_length}, truncate={truncation.truncate}; rows cut: {cut_rows or 'none'}"
    rows = [
        [number(trial.max_length), percent(trial.cut_rows), percent(trial.lost_tokens)]
        for trial in truncation.trials
        if trial.cut_rows
    ]
    table = Table(dict.fromkeys(("if max_length were", "rows cut", "tokens lost"), "number"), rows)
    return Section("Truncation", [Text(f"Now: {text}."), table if rows else None])


def _fields(survey: DatasetSurvey) -> Section:
    columns = dict.fromkeys(("field", "kind", "columns", "read as", "categories", "unknown", "constant"), "text")
    table = Table(
        columns | {"categories": "number"},
        [_field_row(*item) for item in survey.fields.items()],
        stacked=True,
        page_columns=("columns", "read as"),
    )
    ignored = f"Columns that no field reads: {listed(survey.ignored, 30)}."
    blocks = [table, Text(ignored, soft=True, page_only=True) if survey.ignored else None]
    return Section("Fields", [*blocks, *_missing(survey), *_spread(survey)])


def _field_row(name: str, field: FieldStatistics) -> list[object]:
    unknown = [f"{split} {percent(share)}" for split, share in (field.unknown or {}).items() if share]
    return [
        shortened(name),
        field.kind,
        listed(field.columns),
        shortened(field.describe, 120) or NO_VALUE,
        NO_VALUE if field.size is None else number(field.size),
        ", ".join(unknown) or (NO_VALUE if field.unknown is None else "none"),
        "all of it" if field.constant else listed(field.constant_channels or []) or NO_VALUE,
    ]


def _missing(survey: DatasetSurvey) -> list[Block]:
    """Return blocks about missing values: the fraction of training tokens without a value in each channel.

    The channel with the largest fraction comes first.
    """
    shares = [
        (channel, name, share)
        for name, field in survey.fields.items()
        for channel, share in (field.missing or {}).items()
    ]
    if not shares:
        return []
    one_field = len({name for _, name, _ in shares}) == 1
    rows = [
        [shortened(channel if one_field else f"{channel} ({name})"), bar(share), percent(share)]
        for channel, name, share in sorted(shares, key=lambda entry: -entry[2])
    ]
    mean = percent(sum(share for *_, share in shares) / len(shares))
    return [
        Heading("Missing values"),
        Text(f"On average {mean} of the values are missing in the tokens of train."),
        Table({"channel": "text", "": "bar", "missing": "number"}, rows, folded="Each channel"),
    ]


def _spread(survey: DatasetSurvey) -> list[Block]:
    fields = [(name, field, field.spread) for name, field in survey.fields.items() if field.spread is not None]
    if not fields:
        return []
    rows = [
        [
            shortened(name),
            *spread_cells(list(spread.values())),
            NO_VALUE if field.flattened is None else percent(field.flattened.share),
        ]
        for name, field, spread in fields
    ]
    several = [(name, spread) for name, _, spread in fields if len(spread) > 1]
    channels = [
        [shortened(channel if len(several) == 1 else f"{channel} ({name})"), *spread_cells([one])]
        for name, spread in several
        for channel, one in spread.items()
    ]
    numbers = dict.fromkeys(SPREAD_HEADINGS, "number")
    text = (
        "Within: the median standard deviation within a sequence, and how many times larger the 95% quantile of these "
        "is than the 5% quantile. Between: the standard deviation of the means of the sequences. Flat: the share of "
        "the sequences that vary by less than a tenth of the one scale of all sequences."
    )
    blocks: list[Block] = [
        Heading("Numbers within and between sequences"),
        Text(text, page_only=True),
        Table({"field": "text", **numbers, "flat": "number"}, rows, stacked=True),
    ]
    table = Table({"channel": "text", **numbers}, channels, stacked=True, folded="Each channel", page_only=True)
    return [*blocks, table] if channels else blocks


def spread_cells(channels: Sequence[ChannelSpread]) -> list[str]:
    """Return table cells that describe the spread of one or several channels.

    The cells are the range of the values, the standard deviation within sequences, the ratio of the 95 % quantile to
    the 5 % quantile of this deviation, and the standard deviation between sequences. For several channels, each cell
    shows the smallest and the largest number.

    >>> spread_cells([ChannelSpread(0.0, 1.0, 0.5, 0.2, 0.1, 0.4), ChannelSpread(-1.0, 0.5, 0.5, 0.25, 0.1, 0.3)])
    ['-1 to 1', '0.2 to 0.25', '3 to 4', '0.5']
    """
    three_digits = partial(plain_number, digits=3)
    lowest = [spread.lowest for spread in channels if spread.lowest is not None]
    highest = [spread.highest for spread in channels if spread.highest is not None]
    return [
        f"{plain_number(min(lowest))} to {plain_number(max(highest))}" if lowest and highest else NO_VALUE,
        _extent([spread.within for spread in channels], three_digits),
        _extent([spread.within_ratio for spread in channels], number),
        _extent([spread.between for spread in channels], three_digits),
    ]


def _extent(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    present = [value for value in values if value is not None]
    if not present:
        return NO_VALUE
    low, high = text(min(present)), text(max(present))
    return low if low == high else f"{low} to {high}"


# Sections about leaks, the baseline and splits


def _leaks(survey: DatasetSurvey) -> Section:
    leaks = survey.leaks
    used = {name: counts.used for name, counts in survey.rows.items()}

    def row(title: str, count: int, total: int) -> list[object]:
        return [title, number(count), percent(count / max(1, total))]

    rows = [row("rows that repeat an earlier row", leaks.repeated, leaks.rows)]
    for name, count in leaks.seen_before.items():
        rows.append(row(f"rows of {name} with a sequence of an earlier split", count, used[name]))
    for name, count in (leaks.ids_seen_before or {}).items():
        rows.append(row(f"rows of {name} with an id of an earlier split", count, used[name]))
    for name, count in (leaks.groups_seen_before or {}).items():
        rows.append(row(f"rows of {name} of a group that an earlier split has too", count, used[name]))
    for name, count in (leaks.reaching_into or {}).items():
        rows.append([f"rows of earlier splits that end after {name} begins", number(count), ""])
    rows.append(row("rows whose sequence also stands under another label", leaks.conflicting_rows, leaks.rows))
    for name, count in leaks.dropped.items():
        rows.append([f"rows of {name} dropped for this", number(count), ""])
    conflicting = number(leaks.conflicting_sequences) if leaks.conflicting_sequences else "none"
    text = (
        f"{number(leaks.rows)} rows hold {number(leaks.distinct)} distinct sequences; {conflicting} of them under more "
        "than one label."
    )
    if leaks.ids_seen_before is None:
        text += " Ids were not compared, as the rows have none, or only numbers in order."
    table = Table({"": "text", "rows": "number", "share": "number"}, rows)
    return Section("Leaks and duplicates", [Text(text), table])


def _leakage(survey: DatasetSurvey) -> Section | None:
    if not survey.columns:
        return None

    def row(leakage: ColumnLeakage) -> list[object]:
        verdict = "gives the label away" if leakage.revealing else ""
        if leakage.paired_with is not None:
            verdict += f" next to {shortened(leakage.paired_with, 40)} (together {leakage.auroc_together:.3f})"
        return [shortened(leakage.column), f"{leakage.auroc:.3f}", verdict]

    rows = [row(leakage) for leakage in sorted(survey.columns, key=lambda leakage: not leakage.revealing)]
    text = (
        "Target leakage: columns that no field reads, and how well each alone predicts the label, as the area under "
        "the ROC curve (0.5 is chance). One that gives the label away is an outcome, not an input."
    )
    table = Table({"column": "text", "AUROC": "number", "": "text"}, rows)
    return Section("Columns that reveal the label", [Text(text), table])


def _baseline(survey: DatasetSurvey) -> Section:
    split = list(survey.rows)[-1]
    models = {} if survey.baseline is None else survey.baseline.models
    metrics = {name: by_split[split] for name, by_split in models.items() if split in by_split}
    if not metrics or survey.baseline is None:
        return Section("Baseline", [Text("No order-blind baseline was fitted (baseline=false).")], page_only=True)
    scores = {MAJORITY: majority_scores(survey)} | {name: _scores(entry) for name, entry in metrics.items()}
    rows = [
        [_score_title(name, survey.positive), *(score(entry.get(name)) for entry in scores.values())]
        for name in scores[MAJORITY]
    ]
    text = (
        f"Scores on {split} of models that see the tokens of a sequence, but not their order. A sequence model has to "
        f"beat {survey.baseline.model}; if it does not, the order carries no information, or the model did not learn "
        "it."
    )
    blocks: list[Block] = [Text(text), Table({"": "text", **dict.fromkeys(scores, "number")}, rows)]
    alone = sorted((survey.single_field_recall or {}).items(), key=lambda item: -item[1])
    if alone:
        single = [[shortened(name), bar(recall), score(recall)] for name, recall in alone]
        blocks += [
            Heading("Each field alone"),
            Table({"field": "text", "": "bar", "macro recall": "number"}, single),
        ]
    return Section("Baseline: without the order of the tokens", blocks)


def _scores(metrics: ClassificationMetrics) -> dict[str, float | None]:
    scores: dict[str, float | None] = {"accuracy": metrics.accuracy, "recall": metrics.recall, "f1": metrics.f1}
    if metrics.positive is not None:
        scores |= {
            "positive_recall": metrics.positive.recall,  # the key "recall" is macro recall
            "average_precision": metrics.positive.average_precision,
            "auroc": metrics.positive.auroc,
        }
    return scores


def _score_title(name: str, positive: str | None) -> str:
    return metric_title("recall", positive) if name == "positive_recall" else metric_title(name)


def majority_scores(survey: DatasetSurvey) -> dict[str, float | None]:
    """Return the scores on the last split of a model that always predicts the most frequent training class.

    As in `seqclf.evaluation.metrics`, macro recall is the mean over classes with rows. Macro F1 is the mean over
    classes that occur as a label or as a prediction.
    """
    split = list(survey.rows)[-1]
    majority = max(survey.classes, key=lambda counts: counts.rows["train"]).label
    rows = {counts.label: counts.rows[split] for counts in survey.classes}
    total, correct = sum(rows.values()), rows[majority]
    occurring = sum(count > 0 or label == majority for label, count in rows.items())
    scores: dict[str, float | None] = {
        "accuracy": correct / max(1, total),
        "recall": (correct > 0) / max(1, sum(count > 0 for count in rows.values())),
        "f1": 2 * correct / max(1, correct + total) / occurring,
    }
    if survey.positive is not None:
        positives = rows[survey.positive]
        both_classes = 0 < positives < total  # both areas under curves are undefined with a single class
        scores["positive_recall"] = float(majority == survey.positive) if positives else None
        scores["average_precision"] = positives / total if both_classes else None
        scores["auroc"] = 0.5 if both_classes else None
    return scores


def _splits(survey: DatasetSurvey) -> Section:
    headings = {"used": "rows", "refused": "refused", "truncated": "cut", "tokens": "tokens"}
    columns = {"split": "text", **dict.fromkeys(headings.values(), "number")}
    rows = [[split, *(number(getattr(counts, key)) for key in headings)] for split, counts in survey.rows.items()]
    if survey.groups is not None:
        columns["groups"] = "number"
        rows = [[*row, number(count)] for row, count in zip(rows, survey.groups.values(), strict=True)]
    # Without groups, the terminal omits this table, because `describe` printed the same counts when it read the data.
    return Section("Splits", [Table(columns, rows)], page_only=survey.groups is None)
