"""A survey as one HTML page, for readers who have not seen the data yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from seqclf.documents.figures import picture
from seqclf.documents.formatting import (
    NO_VALUE,
    label_text,
    listed,
    number,
    percent,
    plain_number,
    score,
    shortened,
    warning_lines,
)
from seqclf.documents.html import Bar, Table, bar, limited_rows, render_page
from seqclf.survey import content
from seqclf.survey.fields import FieldStatistics
from seqclf.survey.length_figure import is_geometric, length_picture
from seqclf.survey.lengths import LengthSummary
from seqclf.survey.survey import DatasetSurvey
from seqclf.survey.target_leakage import ColumnLeakage
from seqclf.survey.values import TokenRate, TokenRates, ValueDistribution, ValueQuantiles
from seqclf.system.atomic_files import write_output

# Tables of what the data looks like: example rows, frequent and typical tokens, and value distributions.

MAX_FIELDS = 30
MAX_CHANNELS = 100  # rows of a table
MAX_CHANNELS_BY_CLASS = 20
MAX_COLUMNS = 4  # classes next to each other
MAX_ROW_CHARACTERS = 500  # characters of an example
SPARK_WIDTH, SPARK_HEIGHT = 96, 20


def content_context(survey: DatasetSurvey) -> dict[str, Any]:
    """Return the variables of the sections on rows, tokens and values."""
    examples = [
        [label_text(row.label, 40), number(row.length), shortened(row.text, MAX_ROW_CHARACTERS)]
        for row in survey.examples
    ]
    return {
        "example_table": Table({"class": "text", "tokens": "number", "row": "text"}, examples, stacked=True),
        "token_tables": [
            (shortened(name), _frequent_table(rates, survey), _typical_table(rates))
            for name, rates in list(survey.tokens.items())[:MAX_FIELDS]
            if rates.frequent
        ],
        "value_tables": [
            (shortened(name), unit_of(channels), _value_table(channels), _class_strips(channels))
            for name, channels in list(survey.values.items())[:MAX_FIELDS]
            if channels
        ],
    }


def unit_of(channels: dict[str, ValueDistribution]) -> str:
    """Return words for the unit of a field, to follow its name."""
    return "seconds since the token before" if next(iter(channels.values())).unit == "s" else "values"


def typical_text(rate: TokenRate, label: str) -> str:
    """Write a typical value with its rate in the class.

    >>> typical_text(TokenRate("awful", 0.001, {"bad": 0.002}), "bad")
    'awful 0.2%'
    """
    return f"{shortened(rate.value, 30)} {percent(rate.rates[label])}"


def value_text(value: float | None) -> str:
    """Format a value of the data.

    >>> value_text(0.01234567), value_text(1234567.0), value_text(None)
    ('0.01235', '1234567', '-')
    """
    return NO_VALUE if value is None else plain_number(value)


def _frequent_table(rates: TokenRates, survey: DatasetSurvey) -> Table:
    labels = list(rates.frequent[0].rates)
    shown = labels if len(survey.classes) <= MAX_COLUMNS else []
    rows = [
        [shortened(rate.value, 40), percent(rate.share), *(percent(rate.rates[label]) for label in shown)]
        for rate in rates.frequent
    ]
    headings = [f"in {label_text(label, 20)}" for label in shown]
    return Table({"value": "text", "of all": "number", **dict.fromkeys(headings, "number")}, rows)


def _typical_table(rates: TokenRates) -> Table:
    rows = [
        [label_text(label, 40), ", ".join(typical_text(rate, label) for rate in values) or "none"]
        for label, values in rates.typical.items()
    ]
    return Table({"class": "text", "more often than in other classes": "text"}, rows)


def _value_table(channels: dict[str, ValueDistribution]) -> Table:
    rows: list[Sequence[object]] = [
        [
            shortened(name, 40),
            spark(distribution.counts),
            *(value_text(getattr(distribution.all_rows, level)) for level in ("p5", "p50", "p95")),
        ]
        for name, distribution in channels.items()
    ]
    columns = {"channel": "text", "distribution": "text", "p5": "number", "median": "number", "p95": "number"}
    return Table(columns, limited_rows(rows, MAX_CHANNELS), folded="Each channel")


def _class_strips(channels: dict[str, ValueDistribution]) -> Table:
    """Rows of channel and class, with strips from p5 to p95 and a mark at the median."""
    rows: list[Sequence[object]] = []
    for name, distribution in list(channels.items())[:MAX_CHANNELS_BY_CLASS]:
        if len(distribution.by_class) < 2:
            continue
        for position, (label, quantiles) in enumerate(distribution.by_class.items()):
            channel = shortened(name, 40) if position == 0 else ""
            levels = (value_text(getattr(quantiles, level)) for level in ("p5", "p50", "p95"))
            rows.append([channel, label_text(label, 40), _strip(quantiles, distribution), *levels])
    columns = {"channel": "text", "class": "text", "": "bar", "p5": "number", "median": "number", "p95": "number"}
    return Table(columns, rows)


def _strip(quantiles: ValueQuantiles, distribution: ValueDistribution) -> Bar:
    """Return the range of a class on the axis from the lowest to the highest quantile of all classes."""
    ends = [end for entry in distribution.by_class.values() for end in (entry.p5, entry.p95) if end is not None]
    if quantiles.p5 is None or quantiles.p95 is None or quantiles.p50 is None:
        return Bar(0.0, 0.0)
    low, high = min(ends), max(ends)
    start, end, mark = ((level - low) / ((high - low) or 1.0) for level in (quantiles.p5, quantiles.p95, quantiles.p50))
    return Bar(start, end, mark)


def spark(counts: Sequence[int]) -> Markup | str:
    """Draw a histogram as a small picture in a table cell. Heights are square roots, so that rare values are seen."""
    if not counts:
        return "one value"
    top = math.sqrt(max(counts))
    step = SPARK_WIDTH / len(counts)
    bars = "".join(
        f"M{position * step:.1f} {SPARK_HEIGHT}v{-SPARK_HEIGHT * math.sqrt(count) / top:.1f}h{step:.1f}V{SPARK_HEIGHT}z"
        for position, count in enumerate(counts)
        if count
    )
    return Markup(
        f'<svg viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" preserveAspectRatio="none" aria-hidden="true" '
        f'style="display:block;width:6rem;height:1.25rem"><path fill="var(--fill)" d="{bars}"></path>'
        f'<path stroke="currentColor" stroke-width=".5" d="M0 {SPARK_HEIGHT}h{SPARK_WIDTH}"></path></svg>'
    )


MAX_ROWS = 100  # of a table, so that a page of thousands of classes stays below a megabyte
MAX_WARNINGS = 100
PERCENTILES = ("p5", "p50", "p95", "max")


def write_page(survey: DatasetSurvey, path: Path) -> None:
    """Write the page. It needs no other file and no network, and stays small for any data."""
    context = {
        **_length_context(survey),
        **_field_context(survey),
        **_baseline_context(survey),
        **content_context(survey),
        "warnings": warning_lines(survey.warnings, MAX_WARNINGS),
        "imbalance": content.imbalance(survey),
        "class_table": _class_table(survey),
        **_guarantee_context(survey),
        "padding": survey.batches,
        "padding_table": _padding_table(survey),
        "is_cut": any(survey.truncation.cut_rows.values()),
        "truncation": content.truncation_text(survey),
        "limit_table": _limit_table(survey),
        "leaks": survey.leaks,
        "leak_table": _leak_table(survey),
        "leakage_table": _leakage_table(survey),
        "split_table": _split_table(survey),
    }
    page = render_page("describe.html", title=shortened(survey.name), summary=survey_summary(survey), **context)
    write_output(path, page)


def survey_summary(survey: DatasetSurvey) -> str:
    """Describe the data in one sentence."""
    lengths, largest = survey.lengths.all_rows, content.by_size(survey)[0]
    length_range = f"{number(lengths.min)} to {number(lengths.max)} tokens, half of them at most {number(lengths.p50)}"
    return (
        f"{number(lengths.rows)} sequences in {number(len(survey.classes))} classes, of {length_range}; the largest "
        f"class, {label_text(largest.label, 40)}, holds {percent(largest.share)} of them."
    )


def _class_table(survey: DatasetSurvey) -> Table:
    splits, classes = list(survey.rows), content.by_size(survey)
    largest_share = classes[0].share
    rows: list[Sequence[object]] = []
    for counts in classes:
        positive = " (positive)" if counts.label == survey.positive else ""
        label = label_text(counts.label, 40) + positive
        rows_by_split = [number(counts.rows[split]) for split in splits]
        rows.append([label, bar(counts.share / largest_share), percent(counts.share), *rows_by_split])
    columns = {"class": "text", "": "bar", "share": "number", **dict.fromkeys(splits, "number")}
    return Table(columns, limited_rows(rows, MAX_ROWS))


def _guarantee_context(survey: DatasetSurvey) -> dict[str, Any]:
    if survey.guarantees is None:
        return {"guarantee_table": None}
    first, *others = content.guarantee_headings(survey.guarantees)
    rows = limited_rows(content.guarantee_rows(survey), MAX_ROWS)
    sentence = content.guarantee_sentence(survey.guarantees)
    return {
        "guarantee_table": Table({first: "text", **dict.fromkeys(others, "number")}, rows),
        "guarantee_sentence": sentence[0].upper() + sentence[1:],
        "holdout": survey.guarantees.holdout,
    }


def _length_context(survey: DatasetSurvey) -> dict[str, Any]:
    lengths = survey.lengths
    overall = lengths.all_rows
    geometric = is_geometric(lengths.histogram.edges)
    position = _axis_position(overall, geometric)

    def row(label: str, summary: LengthSummary) -> list[object]:
        strip = Bar(position(summary.p5), position(summary.p95), position(summary.p50))
        return [label, strip, *(number(getattr(summary, name)) for name in PERCENTILES)]

    labels = [counts.label for counts in content.by_size(survey) if counts.label in lengths.by_class]
    class_rows = limited_rows([row(label_text(label, 40), lengths.by_class[label]) for label in labels], MAX_ROWS)
    columns = {"class": "text", "p5 to p95, and median": "bar", **dict.fromkeys(PERCENTILES, "number")}
    rows = [row("all rows", overall), *class_rows]
    description = (
        f"Histogram of the lengths: median {number(overall.p50)}, 5% below {number(overall.p5)}, 5% above "
        f"{number(overall.p95)}"
    )
    return {
        "geometric_bins": geometric,
        "histogram": picture(lambda width_in: length_picture(lengths, width_in), description),
        "length_table": Table(columns, rows, strong=0, folded="Lengths by class"),
    }


def _axis_position(overall: LengthSummary, geometric: bool) -> Callable[[float], float]:
    """Return the function from a length to its position between the shortest (0) and the longest (1)."""
    scale = math.log if geometric else float
    low, high = scale(overall.min), scale(overall.max)
    return lambda length: (scale(length) - low) / ((high - low) or 1)


def _padding_table(survey: DatasetSurvey) -> Table:
    shares = {
        "batches of similar lengths": survey.batches.padding_efficiency,
        "everything padded to the longest": survey.batches.padding_efficiency_static,
    }
    rows = [[name, bar(share), percent(share)] for name, share in shares.items()]
    return Table({"": "text", " ": "bar", "sequence": "number"}, rows)


def _limit_table(survey: DatasetSurvey) -> Table:
    rows = [
        [number(trial.max_length), percent(trial.cut_rows), percent(trial.lost_tokens)]
        for trial in content.cutting_limits(survey)
    ]
    return Table(dict.fromkeys(("if max_length were", "rows cut", "tokens lost"), "number"), rows)


def _field_context(survey: DatasetSurvey) -> dict[str, Any]:
    headings = ("field", "kind", "columns", "read as", "categories", "unknown", "constant")
    columns = dict.fromkeys(headings, "text") | {"categories": "number"}
    rows = limited_rows([_field_row(*item) for item in survey.fields.items()], MAX_ROWS)
    shares = [
        (channel, name, share)
        for name, field in survey.fields.items()
        for channel, share in (field.missing or {}).items()
    ]
    return {
        "field_table": Table(columns, rows, stacked=True),
        "ignored_columns": listed(survey.ignored, 30),
        "mean_missing": sum(share for *_, share in shares) / max(1, len(shares)),
        "missing_table": _missing_table(shares),
        "spread_table": _spread_table(survey),
        "channel_table": _channel_table(survey),
    }


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


def _missing_table(shares: list[tuple[str, str, float]]) -> Table:
    """List channel, field and share of the training tokens without a value, the largest share first."""
    one_field = len({name for _, name, _ in shares}) == 1
    rows: list[Sequence[object]] = []
    for channel, name, share in sorted(shares, key=lambda entry: -entry[2]):
        title = channel if one_field else f"{channel} ({name})"
        rows.append([shortened(title), bar(share), percent(share)])
    columns = {"channel": "text", "": "bar", "missing": "number"}
    return Table(columns, limited_rows(rows, MAX_ROWS), folded="Each channel")


def _spread_table(survey: DatasetSurvey) -> Table:
    rows: list[Sequence[object]] = []
    for name, field in survey.fields.items():
        if field.spread is not None:
            share = NO_VALUE if field.flattened is None else percent(field.flattened.share)
            rows.append([shortened(name), *content.spread_cells(list(field.spread.values())), share])
    columns = {"field": "text", **dict.fromkeys((*content.SPREAD_HEADINGS, "flat"), "number")}
    return Table(columns, limited_rows(rows, MAX_ROWS), stacked=True)


def _channel_table(survey: DatasetSurvey) -> Table:
    """List the channels of the fields that have several."""
    several = {name: field.spread for name, field in survey.fields.items() if len(field.spread or {}) > 1}
    rows: list[Sequence[object]] = [
        [shortened(channel if len(several) == 1 else f"{channel} ({name})"), *content.spread_cells([spread])]
        for name, channels in several.items()
        for channel, spread in (channels or {}).items()
    ]
    columns = {"channel": "text", **dict.fromkeys(content.SPREAD_HEADINGS, "number")}
    return Table(columns, limited_rows(rows, MAX_ROWS), stacked=True, folded="Each channel")


def _leak_table(survey: DatasetSurvey) -> Table:
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
    return Table({"": "text", "rows": "number", "share": "number"}, rows)


def _leakage_table(survey: DatasetSurvey) -> Table:
    def row(leakage: ColumnLeakage) -> list[object]:
        verdict = "gives the label away" if leakage.revealing else ""
        if leakage.paired_with is not None:
            verdict += f" next to {shortened(leakage.paired_with, 40)} (together {leakage.auroc_together:.3f})"
        return [shortened(leakage.column), f"{leakage.auroc:.3f}", verdict]

    rows = [row(leakage) for leakage in sorted(survey.columns, key=lambda leakage: not leakage.revealing)]
    return Table({"column": "text", "AUROC": "number", "": "text"}, limited_rows(rows, MAX_ROWS))


def _baseline_context(survey: DatasetSurvey) -> dict[str, Any]:
    scores_by_model = content.baseline_rows(survey)
    if not scores_by_model or survey.baseline is None:
        return {"baseline_table": None}
    rows = [
        [
            content.score_title(name, survey.positive),
            *(score(scores.get(name)) for scores in scores_by_model.values()),
        ]
        for name in next(iter(scores_by_model.values()))
    ]
    single_fields = limited_rows(
        [[shortened(name), bar(recall), score(recall)] for name, recall in content.single_field_rows(survey)], MAX_ROWS
    )
    return {
        "last_split": content.last_split(survey),
        "baseline_model": survey.baseline.model,
        "baseline_table": Table({"": "text", **dict.fromkeys(scores_by_model, "number")}, rows),
        "single_field_table": Table({"field": "text", "": "bar", "macro recall": "number"}, single_fields),
    }


def _split_table(survey: DatasetSurvey) -> Table:
    headings = {"used": "rows", "refused": "refused", "truncated": "cut", "tokens": "tokens"}
    rows = [[split, *(number(getattr(counts, key)) for key in headings)] for split, counts in survey.rows.items()]
    columns = {"split": "text", **dict.fromkeys(headings.values(), "number")}
    if survey.groups is not None:
        columns["groups"] = "number"
        rows = [[*row, number(count)] for row, count in zip(rows, survey.groups.values(), strict=True)]
    return Table(columns, rows)
