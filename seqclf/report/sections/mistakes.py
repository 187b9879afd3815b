"""The section of the worst mistakes: misclassified rows whose true label has the lowest predicted probability."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from seqclf.data.encoding.token_table import TokenTable
from seqclf.documents.blocks import Section, Table, Template
from seqclf.documents.formatting import head_and_tail_text, listed, number, percent, printable, shortened
from seqclf.report.mistakes import Mistake
from seqclf.report.report import Report
from seqclf.report.section import ReportSection
from seqclf.system.run_folder import PREDICTIONS

SHORT_TEXT = 600  # characters of a text that are visible without a click
LONG_TEXT = 8000  # characters of a text that a click reveals
LONG_LINE = 2000  # characters of the tokens in one line
MAX_TOKEN_CHARACTERS = 120  # characters of one token in a line of tokens
MAX_COLUMNS = 30
NUMERIC = re.compile(r"[-+≤≥]?\d")  # start of a number or a duration
CONTRIBUTION = "contribution"  # heading of the column of contributions
NOT_READ = "not read"  # text instead of a contribution, for a token that the model did not read
BLANK = "␣"  # symbol for a blank token, which character tokenizers produce
LINE_COLUMNS = 3  # maximum number of columns of a token table that can be shown in one line


class LineToken(NamedTuple):
    """A token in a line of tokens.

    `side`: effect of the token on the prediction. `side` is "supports", "opposes", "unread" if the model did not read
    the token, or "" if no contributions were computed. `share`: strength of the token's background colour, as a CSS
    percentage. `value`: contribution of the token, formatted as text.
    """

    text: str
    side: str = ""
    share: str = ""
    value: str = ""


class ShownText(NamedTuple):
    """An original text of a row.

    `short`: the text, shortened to `SHORT_TEXT` characters. `whole`: the text, shortened to `LONG_TEXT` characters, or
    `None` if `short` has the complete text. `length`: number of characters of the complete text.
    """

    field: str
    short: str
    whole: str | None
    length: int


class ShownMistake(NamedTuple):
    """A misclassified row as text, for the template of the page.

    `line`: the tokens of the row in one line, or `None` if the page shows only the table of tokens. `separator`: text
    between two tokens of the line. `is_explained`: True if the line shows contributions. `are_numbers`: True if the
    line shows the number of each token instead of its text. The table shows the fields of each token in this case.
    """

    id: str
    label: str
    predicted: str
    probability: str
    tokens: str
    texts: list[ShownText]
    line: list[LineToken] | None
    separator: str
    is_explained: bool
    are_numbers: bool
    table: Table | None
    note: str


class MistakesSection(ReportSection):
    """The misclassified rows whose true label has the lowest predicted probability."""

    position: ClassVar[float] = 80

    def build(self, report: Report) -> Section:
        """Return the misclassified rows. The row whose true label has the lowest probability comes first."""
        mistakes = list(map(_shown, report.mistakes))
        explained = sum(mistake.is_explained for mistake in mistakes)
        unread = any(None in (mistake.contributions or ()) for mistake in report.mistakes)
        context = {
            "split": report.split,
            "mistakes": mistakes,
            "explained": explained,
            "unread": unread,
            "all_rows": PREDICTIONS if report.bundle is None else None,  # only a training run has this file
        }
        return Section("Worst errors", [Template("run/mistakes.html", context)])


def _shown(mistake: Mistake) -> ShownMistake:
    texts = [_shown_text(name, text) for name, text in mistake.texts.items()]
    is_explained = mistake.contributions is not None
    fits_line = len(mistake.table.columns) <= LINE_COLUMNS
    # A text is easier to read than a table of its tokens, so the table appears only if it adds contributions.
    table = None if texts and not is_explained else _token_table(mistake.table, mistake.contributions)
    line = None
    if texts and not is_explained:
        line = [LineToken(head_and_tail_text(printable(mistake.tokens), LONG_LINE))]
    elif fits_line or is_explained:
        line = _token_line(mistake.table, mistake.contributions, fits_line)
    return ShownMistake(
        id=printable(mistake.id),
        label=shortened(mistake.label, 60),
        predicted=shortened(mistake.predicted, 60),
        probability=percent(mistake.probability),
        tokens=number(mistake.length),
        texts=texts,
        line=line,
        separator=" " if texts or not fits_line else " | ",
        is_explained=is_explained,
        are_numbers=not fits_line,
        table=table,
        note=_note(mistake.table),
    )


def _shown_text(field: str, text: str) -> ShownText:
    text = printable(text, keep="\n\t")
    short, whole = head_and_tail_text(text, SHORT_TEXT), head_and_tail_text(text, LONG_TEXT)
    return ShownText(field, short, None if short == text else whole, len(text))


def _token_line(table: TokenTable, contributions: Sequence[float | None] | None, with_texts: bool) -> list[LineToken]:
    """Return the first and last tokens of a row as one line of at most `SHORT_TEXT` characters.

    The line has at least one token from each end of the row. `with_texts`: True to show the text of each token, False
    to show its number, counted from 1.
    """
    tokens = [str(position + 1) for position in table.positions]
    if with_texts:
        tokens = [
            shortened(" ".join(texts), MAX_TOKEN_CHARACTERS) for texts in zip(*table.columns.values(), strict=True)
        ]
    shown = [index for index, position in enumerate(table.positions) if position not in table.phrases]
    most = len(shown)
    while most > 2 and len(" | ".join(tokens[index] for index in _ends(shown, most))) > SHORT_TEXT:
        most -= 2
    # The word with the largest contribution gets the strongest shade. Phrases are ignored, because they are not in the
    # line and often contribute far more.
    largest = max((abs(contributions[index] or 0.0) for index in shown), default=0.0) if contributions else 0.0
    phrases = sorted(table.phrases)
    line: list[LineToken] = []
    done = 0  # number of tokens of the row that the line covers so far
    for index in _ends(shown, most):
        place = table.positions[index] - bisect(phrases, table.positions[index])
        line += [_gap(place - done)] * (place > done)
        line.append(_line_token(tokens[index], contributions, index, largest))
        done = place + 1
    total = table.length - len(phrases)
    return line + [_gap(total - done)] * (done < total)


def _ends(shown: list[int], most: int) -> list[int]:
    return shown if most == len(shown) else [*shown[: most // 2], *shown[-(most // 2) :]]


def _line_token(text: str, contributions: Sequence[float | None] | None, index: int, largest: float) -> LineToken:
    if contributions is None:
        return LineToken(text)
    value = contributions[index]
    if value is None:
        return LineToken(text or BLANK, "unread", "0%", NOT_READ)
    side = "supports" if value > 0 else "opposes"
    return LineToken(text or BLANK, side, f"{100 * abs(value) / (largest or 1.0):.0f}%", _contribution(value))


def _gap(count: int) -> LineToken:
    return LineToken(f"… {count:,} more …")


def _contribution(value: float | None) -> str:
    return NOT_READ if value is None else f"{value:+.2f}"


def _token_table(table: TokenTable, contributions: Sequence[float | None] | None) -> Table:
    """Return a table with one row for each token and one column for each field.

    Tokens are numbered from 1. A line such as "… 20 more" replaces the tokens that are omitted.
    """
    columns = dict(list(table.columns.items())[:MAX_COLUMNS])
    kinds = {shortened(name, 30): "number" if _is_numeric(texts) else "text" for name, texts in columns.items()}
    rows: list[list[object]] = []
    before = -1
    for index, position in enumerate(table.positions):
        if position > before + 1:
            rows.append([f"… {position - before - 1:,} more"])
        value = [] if contributions is None else [_contribution(contributions[index])]
        rows.append([position + 1, *value, *(shortened(texts[index], 40) for texts in columns.values())])
        before = position
    count = len(table.positions)
    caption = f"{count:,} tokens" if count == table.length else f"First and last tokens, {count:,} of {table.length:,}"
    headings = {"token": "number", **({} if contributions is None else {CONTRIBUTION: "number"})}
    return Table({**headings, **kinds}, rows, caption=caption)


def _is_numeric(texts: list[str]) -> bool:
    return all(NUMERIC.match(text) for text in texts if text)


def _note(table: TokenTable) -> str:
    """Return a note that lists the columns omitted from the token table, and the empty columns."""
    more = list(table.columns)[MAX_COLUMNS:]
    notes = [f"more columns: {listed(more)}"] * bool(more)
    notes += [f"without a value in these tokens: {listed(table.empty)}"] * bool(table.empty)
    return "; ".join(notes)
