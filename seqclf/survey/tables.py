"""A survey in the terminal, shown after `show_dataset`, which lists its fields and splits."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from seqclf.documents.formatting import (
    NO_VALUE,
    head_and_tail,
    label_text,
    listed,
    number,
    percent,
    score,
    shortened,
)
from seqclf.documents.terminal import MAX_CLASSES, console, show_warnings
from seqclf.survey import content
from seqclf.survey.class_counts import ClassCounts
from seqclf.survey.document import typical_text, value_text
from seqclf.survey.fields import FieldStatistics
from seqclf.survey.survey import DatasetSurvey

MAX_CHANNELS = 14  # lines of values
MAX_TYPICAL_CLASSES = 10  # classes
MAX_GUARANTEES = 5  # classes
EXAMPLE_CHARACTERS = 90
PERCENTILES = ("p5", "p50", "p95", "max")


def show_survey(survey: DatasetSurvey) -> None:
    """Print classes with their lengths, padding, fields and baseline, then the warnings."""
    _show_classes(survey)
    _show_guarantees(survey)
    _show_padding_and_truncation(survey)
    _show_fields(survey)
    _show_spread(survey)
    _show_values(survey)
    _show_typical_tokens(survey)
    _show_examples(survey)
    _show_baseline(survey)
    show_warnings(survey.warnings)  # last, where a reader of the terminal looks first


def _print_line(line: str) -> None:
    """Print a line without markup, since it may hold labels and column names."""
    console.print(Text(line), soft_wrap=True)


def _print_table(headings: Iterable[str], rows: Iterable[Iterable[str]], text_columns: int = 1) -> None:
    """Print a table whose first `text_columns` columns are left-aligned, and the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column, heading in enumerate(headings):
        table.add_column(heading, justify="left" if column < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _show_classes(survey: DatasetSurvey) -> None:
    """Print rows, share and lengths by class, the largest first. Of many classes, the largest and the smallest."""
    splits, lengths = list(survey.rows), survey.lengths

    def class_row(counts: ClassCounts) -> list[str]:
        summary = lengths.by_class.get(counts.label)
        rows = [number(counts.rows[split]) for split in splits]
        percentiles = [number(getattr(summary, name)) if summary else NO_VALUE for name in PERCENTILES]
        return [label_text(counts.label, 28), *rows, percent(counts.share), *percentiles]

    first, left_out, last = head_and_tail(content.by_size(survey), MAX_CLASSES - 1)  # one line is that of all classes
    totals = [number(survey.rows[split].used) for split in splits]
    rows = [["all", *totals, "100%", *(number(getattr(lengths.all_rows, name)) for name in PERCENTILES)]]
    if survey.groups is not None:
        rows.append(["groups", *map(number, survey.groups.values())])
    rows += map(class_row, first)
    if left_out:
        rows.append([f"… {left_out:,} more"])
    rows += map(class_row, last)
    cut = " before truncation" if any(survey.truncation.cut_rows.values()) else ""
    _print_line(f"rows by class, and percentiles of their lengths{cut}:")
    _print_table(["class", *splits, "share", *PERCENTILES], rows)
    ratio = content.imbalance(survey)
    if ratio is not None and ratio > 1:
        ordered = sorted(survey.classes, key=lambda counts: -counts.rows["train"])
        largest, smallest = (label_text(counts.label, 40) for counts in (ordered[0], ordered[-1]))
        _print_line(f"'{largest}' has {number(ratio)} training rows for each of '{smallest}'")


def _show_guarantees(survey: DatasetSurvey) -> None:
    """Print the labels with the fewest held-out rows, and whether these are enough for a guarantee."""
    if survey.guarantees is None:
        return
    rows = content.guarantee_rows(survey)
    more = [[f"… {len(rows) - MAX_GUARANTEES:,} more"]] if len(rows) > MAX_GUARANTEES else []
    _print_line(f"{content.guarantee_sentence(survey.guarantees)}:")
    _print_table(content.guarantee_headings(survey.guarantees), [*rows[:MAX_GUARANTEES], *more])


def _show_padding_and_truncation(survey: DatasetSurvey) -> None:
    """Print the costs of padding and of limits on the length."""
    batches = survey.batches
    _print_line(
        f"padding: {percent(batches.padding_efficiency)} of what is computed is sequence, in "
        f"{number(batches.batches)} batches of {number(batches.rows_per_batch)} rows; "
        f"{percent(batches.padding_efficiency_static)} if all were padded to the longest"
    )
    _print_line(f"truncation: {content.truncation_text(survey)}")
    limits = [
        f"max_length={trial.max_length} {percent(trial.cut_rows)} of rows, {percent(trial.lost_tokens)} of tokens"
        for trial in content.cutting_limits(survey)
    ]
    if limits:
        _print_line(f"  would cut: {'; '.join(limits)}")


def _show_fields(survey: DatasetSurvey) -> None:
    """Print unknown, missing and constant values of the fields."""
    first, left_out, last = head_and_tail(list(survey.fields.items()), MAX_CLASSES)
    rows = [_field_row(*item) for item in first]
    if left_out:
        rows.append([f"… {left_out:,} more"])
    rows += [_field_row(*item) for item in last]
    _print_table(["field", "kind", "unknown", "missing", "constant"], rows, text_columns=5)


def _field_row(name: str, field: FieldStatistics) -> list[str]:
    unknown = [f"{split} {percent(share)}" for split, share in (field.unknown or {}).items() if share]
    shares = field.missing or {}
    missing = NO_VALUE
    if shares:
        missing = percent(sum(shares.values()) / len(shares))
        if len(shares) > 1:
            worst = max(shares, key=lambda channel: shares[channel])
            missing += f" (most: {shortened(worst, 20)} {percent(shares[worst])})"
    return [
        shortened(name, 28),
        field.kind,
        ", ".join(unknown) or (NO_VALUE if field.unknown is None else "none"),
        missing,
        "all of it" if field.constant else listed(field.constant_channels or [], 3) or NO_VALUE,
    ]


def _show_spread(survey: DatasetSurvey) -> None:
    """Print range and deviations of the number fields, over all channels of each."""
    rows = [
        [
            shortened(name, 28),
            *content.spread_cells(list(field.spread.values())),
            NO_VALUE if field.flattened is None else percent(field.flattened.share),
        ]
        for name, field in survey.fields.items()
        if field.spread is not None
    ]
    if not rows:
        return
    first, left_out, last = head_and_tail(rows, MAX_CLASSES)
    gap = [[f"… {left_out:,} more"]] if left_out else []
    _print_line("numbers: deviation within sequences, and between their means; flat: below a tenth of the scale")
    _print_table(["field", *content.SPREAD_HEADINGS, "flat"], [*first, *gap, *last])


def _show_values(survey: DatasetSurvey) -> None:
    """Print quantiles of the channels, of many the first and the last."""
    rows = []
    for name, channels in survey.values.items():
        for channel, distribution in channels.items():
            title = name if len(channels) == 1 else f"{channel} ({name})"
            unit = f" [{distribution.unit}]" if distribution.unit else ""
            levels = (getattr(distribution.all_rows, level) for level in ("p5", "p25", "p50", "p75", "p95"))
            rows.append([shortened(title, 28) + unit, *map(value_text, levels)])
    if not rows:
        return
    first, left_out, last = head_and_tail(rows, MAX_CHANNELS)
    gap = [[f"… {left_out:,} more"]] if left_out else []
    _print_line("quantiles of the training values:")
    _print_table(["channel", "p5", "p25", "median", "p75", "p95"], [*first, *gap, *last])


def _show_typical_tokens(survey: DatasetSurvey) -> None:
    """Print the values that each class uses more often than the others, with their share of its tokens."""
    for name, rates in survey.tokens.items():
        lines = [(label, values) for label, values in rates.typical.items() if values]
        if lines:
            _print_line(f"field {shortened(name, 28)}: typical of each class, with their share of its tokens")
        for label, values in lines[:MAX_TYPICAL_CLASSES]:
            texts = [typical_text(rate, label) for rate in values[:6]]
            _print_line(f"  {label_text(label, 28)}: {', '.join(texts)}")


def _show_examples(survey: DatasetSurvey) -> None:
    """Print the beginning of one training row of each class."""
    first = {row.label: row for row in reversed(survey.examples)}
    if first:
        _print_line("example rows:")
    for row in list(reversed(first.values()))[:MAX_TYPICAL_CLASSES]:
        _print_line(f"  {label_text(row.label, 28)}: {shortened(row.text, EXAMPLE_CHARACTERS)}")


def _show_baseline(survey: DatasetSurvey) -> None:
    """Print the scores of the order-blind models on the last split."""
    rows = content.baseline_rows(survey)
    if not rows or survey.baseline is None:
        return
    split = content.last_split(survey)
    _print_line(f"without the order of the tokens, on {split}; to beat: {survey.baseline.model}")
    names = list(next(iter(rows.values())))
    headings = ["model", *(content.score_title(name, survey.positive) for name in names)]
    _print_table(headings, ([model, *(score(scores.get(name)) for name in names)] for model, scores in rows.items()))
    single_fields = [f"{shortened(name, 28)} {recall:.4f}" for name, recall in content.single_field_rows(survey)]
    if single_fields:
        _print_line(f"macro recall of each field alone: {listed(single_fields, MAX_CLASSES)}")
