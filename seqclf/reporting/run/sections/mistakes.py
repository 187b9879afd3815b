"""Worst mistakes of a report: wrong rows with the lowest probability of their true label."""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

from seqclf.data.encoding.described_row import TokenTable
from seqclf.reporting.formatting import head_and_tail_text, listed, number, percent, printable, shortened
from seqclf.reporting.html import Section, Table
from seqclf.reporting.run.mistakes import Mistake
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.report_section import ReportSection

SHORT_TEXT = 600  # characters shown at once
LONG_TEXT = 8000  # characters behind a click
LONG_LINE = 2000  # characters of tokens behind a click
LONGEST_TOKEN = 120  # characters of a token in a line
MOST_COLUMNS = 30
NUMERIC = re.compile(r"[-+≤≥]?\d")  # numbers and durations
LINE_COLUMNS = 3  # tokens of more columns do not fit a line


class ShownText(NamedTuple):
    """An original text. `whole`: the complete text where `short` is not, or as much of it as fits the page."""

    field: str
    short: str
    whole: str | None
    length: int


class ShownMistake(NamedTuple):
    """A mistake as text. `line`: its tokens in one line, None where the table alone is readable."""

    id: str
    label: str
    predicted: str
    probability: str
    tokens: str
    texts: list[ShownText]
    line: str | None
    table: Table | None
    note: str


class MistakesSection(ReportSection):
    """Worst mistakes."""

    position: ClassVar[float] = 80

    def build(self, report: Report) -> Section:
        """Return a block for each mistake, the lowest probability first."""
        return Section("run/mistakes.html", {"split": report.split, "mistakes": list(map(_shown, report.mistakes))})


def _shown(mistake: Mistake) -> ShownMistake:
    texts = [_shown_text(name, text) for name, text in mistake.texts.items()]
    # A text shows more than its tokens in a column do.
    table = None if texts else _token_table(mistake.table)
    line = None
    if texts:
        line = head_and_tail_text(printable(mistake.tokens), LONG_LINE)
    elif len(mistake.table.columns) <= LINE_COLUMNS:
        line = _token_line(mistake.table)
    return ShownMistake(
        id=printable(mistake.id),
        label=shortened(mistake.label, 60),
        predicted=shortened(mistake.predicted, 60),
        probability=percent(mistake.probability),
        tokens=number(mistake.length),
        texts=texts,
        line=line,
        table=table,
        note=_note(mistake.table),
    )


def _shown_text(field: str, text: str) -> ShownText:
    text = printable(text, keep="\n\t")
    short, whole = head_and_tail_text(text, SHORT_TEXT), head_and_tail_text(text, LONG_TEXT)
    return ShownText(field, short, None if short == text else whole, len(text))


def _token_line(table: TokenTable) -> str:
    """The first and last tokens in one line of at most `SHORT_TEXT` characters, or of one token at each end."""
    tokens = [shortened(" ".join(texts), LONGEST_TOKEN) for texts in zip(*table.columns.values(), strict=True)]
    most = len(tokens)
    while most > 2 and len(" | ".join([*tokens[: most // 2], *tokens[-(most // 2) :]])) > SHORT_TEXT:
        most -= 2
    if most == len(tokens) == table.length:
        return " | ".join(tokens)
    first, last = tokens[: most // 2], tokens[-(most // 2) :]
    return " | ".join([*first, f"… {table.length - len(first) - len(last):,} more …", *last])


def _token_table(table: TokenTable) -> Table:
    """A row for each token, numbered from 1, with a line for those left out, and a column for each field."""
    columns = dict(list(table.columns.items())[:MOST_COLUMNS])
    kinds = {shortened(name, 30): "number" if _is_numeric(texts) else "text" for name, texts in columns.items()}
    rows: list[list[object]] = []
    before = -1
    for index, position in enumerate(table.positions):
        if position > before + 1:
            rows.append([f"… {position - before - 1:,} more"])
        cells = [shortened(texts[index], 40) for texts in columns.values()]
        rows.append([position + 1, *cells])
        before = position
    count = len(table.positions)
    caption = f"{count:,} tokens" if count == table.length else f"First and last tokens, {count:,} of {table.length:,}"
    return Table({"token": "number", **kinds}, rows, caption=caption)


def _is_numeric(texts: list[str]) -> bool:
    return all(NUMERIC.match(text) for text in texts if text)


def _note(table: TokenTable) -> str:
    """Columns that the table leaves out."""
    more = list(table.columns)[MOST_COLUMNS:]
    notes = [f"more columns: {listed(more)}"] * bool(more)
    notes += [f"without a value in these tokens: {listed(table.empty)}"] * bool(table.empty)
    return "; ".join(notes)
