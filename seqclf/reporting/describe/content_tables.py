"""Tables of what the data looks like: example rows, frequent and typical tokens, and value distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from seqclf.reporting.formatting import NO_VALUE, number, percent, shortened
from seqclf.reporting.html import Bar, Table, limited_rows
from seqclf.survey.survey import DatasetSurvey
from seqclf.survey.token_rates import TokenRate, TokenRates
from seqclf.survey.value_distributions import ValueDistribution, ValueQuantiles

MOST_FIELDS = 30
MOST_CHANNELS = 100  # rows of a table
MOST_CHANNELS_BY_CLASS = 20
MOST_COLUMNS = 4  # classes next to each other
LONGEST_ROW = 500  # characters of an example
SPARK_WIDTH, SPARK_HEIGHT = 96, 20


def content_context(survey: DatasetSurvey) -> dict[str, Any]:
    """Return the variables of the sections on rows, tokens and values."""
    examples = [
        [shortened(row.label, 40), number(row.length), shortened(row.text, LONGEST_ROW)] for row in survey.examples
    ]
    return {
        "example_table": Table({"class": "text", "tokens": "number", "row": "text"}, examples, stacked=True),
        "token_tables": [
            (shortened(name), _frequent_table(rates, survey), _typical_table(rates))
            for name, rates in list(survey.tokens.items())[:MOST_FIELDS]
            if rates.frequent
        ],
        "value_tables": [
            (shortened(name), unit_of(channels), _value_table(channels), _class_table(channels))
            for name, channels in list(survey.values.items())[:MOST_FIELDS]
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
    ('0.01235', '1.235e+06', '-')
    """
    return NO_VALUE if value is None else f"{value:.4g}"


def _frequent_table(rates: TokenRates, survey: DatasetSurvey) -> Table:
    labels = list(rates.frequent[0].rates)
    shown = labels if len(survey.classes) <= MOST_COLUMNS else []
    rows = [
        [shortened(rate.value, 40), percent(rate.share), *(percent(rate.rates[label]) for label in shown)]
        for rate in rates.frequent
    ]
    headings = [f"in {shortened(label, 20)}" for label in shown]
    return Table({"value": "text", "of all": "number", **dict.fromkeys(headings, "number")}, rows)


def _typical_table(rates: TokenRates) -> Table:
    rows = [
        [shortened(label, 40), ", ".join(typical_text(rate, label) for rate in values) or "none"]
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
    return Table(columns, limited_rows(rows, MOST_CHANNELS), folded="Each channel")


def _class_table(channels: dict[str, ValueDistribution]) -> Table:
    """Rows of channel and class, with strips from p5 to p95 and a mark at the median."""
    rows: list[Sequence[object]] = []
    for name, distribution in list(channels.items())[:MOST_CHANNELS_BY_CLASS]:
        if len(distribution.by_class) < 2:
            continue
        for position, (label, quantiles) in enumerate(distribution.by_class.items()):
            channel = shortened(name, 40) if position == 0 else ""
            levels = (value_text(getattr(quantiles, level)) for level in ("p5", "p50", "p95"))
            rows.append([channel, shortened(label, 40), _strip(quantiles, distribution), *levels])
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
