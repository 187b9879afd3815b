"""The sections of rows: mistakes whose true label has the lowest predicted probability, and suspected wrong labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from markupsafe import Markup

from seqclf.data.encoding.token_table import DescribedRow, TokenTable
from seqclf.documents.blocks import Section, Table, Template, Text
from seqclf.documents.formatting import head_and_tail_text, listed, percent, printable, shortened
from seqclf.evaluation.suspects import suspects_of, unseen_rows
from seqclf.report.charts import sequence_chart
from seqclf.report.reported import Mistake, Reported
from seqclf.system.run_folder import PREDICTIONS

MAX_SUSPECTS = 20  # rows of the table of suspected wrong labels
MAX_TEXT = 2000  # characters of an original text
MAX_LINE = 600  # characters of a line of tokens
MAX_TOKEN = 120  # characters of one token in a line
LINE_COLUMNS = 3  # tokens of one field with more columns are shown as a table instead of a line
LEGEND = 8  # values in the legend of a strip
MAX_COLUMNS = 30  # columns of a table
NUMERIC = re.compile(r"[-+≤≥]?\d")  # start of a number or a duration
BLANK = "␣"  # symbol for a blank token, which character tokenizers produce


class LineToken(NamedTuple):
    """A token in a line of tokens.

    `side`: "supports", "opposes", or "" without contributions. `share`: strength of the background, as a CSS
    percentage. `value`: contribution as text.
    """

    text: str
    side: str = ""
    share: str = ""
    value: str = ""


class ShownMistake(NamedTuple):
    """A misclassified row, for the template of the page. One of `line`, `cells`, `chart` and `table` shows its tokens.

    `texts`: dict text field → original text. `separator`: text between tokens of the line. `cells`: id, position and
    token of each cell of a strip. `legend`: id, text and number of the most frequent values of the strip.
    """

    mistake: Mistake
    id: str
    texts: dict[str, str]
    separator: str
    line: Sequence[LineToken] = ()
    cells: Sequence[tuple[int, int, LineToken]] = ()
    legend: Sequence[tuple[tuple[int, str], int]] = ()
    chart: Markup | None = None
    table: Table | None = None
    static: Mapping[str, LineToken] = MappingProxyType({})


def mistakes_section(reported: Reported) -> Section | None:
    """Return the misclassified rows, by rising probability of the true label, or None without rows of the data."""
    if not reported.mistakes and reported.metrics.accuracy < 1:
        return None
    contributions = [mistake.row.contributions for mistake in reported.mistakes]
    context = {
        "split": reported.split,
        "mistakes": list(map(_shown, reported.mistakes)),
        "explained": sum(values is not None for values in contributions),
        "all_rows": PREDICTIONS if reported.bundle is None else None,  # only a training run has this file
    }
    return Section("Worst errors", [Template("run/mistakes.html", context)])


def suspects_section(reported: Reported) -> Section | None:
    """Return the rows whose label the model contradicts, None without rows of the data or their ids."""
    result = reported.result
    if not result.rows or any(rows.ids is None for rows in result.rows.values()):
        return None
    found = suspects_of(unseen_rows(result), result.decision, pa.array(result.classes))
    scored, chance, same = (float(found.schema.metadata[key]) for key in (b"rows", b"by_chance", b"same"))
    text = (
        f"The model contradicts the label of {len(found):,} of {scored:,.0f} rows. By its probabilities, {same:,.0f} "
    )
    text += "of these would get the same label again, and a set without wrong labels, but as hard to tell, would have "
    text += f"{chance:,.0f} such rows."
    if groups := Counter(found["group"].drop_null().to_pylist()).most_common():
        text += f" They are of {len(groups):,} groups, {groups[0][1]:,} of them of {shortened(groups[0][0])}."
    shown = found.slice(0, MAX_SUSPECTS).drop_columns([] if groups else ["group"])
    rows = [row.values() for row in shown.to_pylist()]
    lines = [[percent(x) if isinstance(x, float) else printable(x or "") for x in row] for row in rows]
    kinds = {name.replace("_", " "): "number" if "probability" in name else "text" for name in shown.column_names}
    return Section("Suspected wrong labels", [Text(text), *([Table(kinds, lines)] if lines else [])])


def _shown(mistake: Mistake) -> ShownMistake:
    row = mistake.row
    texts = {name: head_and_tail_text(printable(text, keep="\n\t"), MAX_TEXT) for name, text in row.texts.items()}
    values = [*row.of_static.values(), *(row.contributions or ())] or None  # shaded beside those of the tokens
    static = {
        shortened(name, 30): _line_token(shortened(text, MAX_TOKEN), values, index)
        for index, (name, text) in enumerate(row.static.items())
    }
    shown = ShownMistake(mistake, printable(row.id), texts, " " if texts else " | ", static=static)
    if row.form == "strip":
        cells = _cells(row)
        legend = Counter((id, token.text) for id, _, token in cells).most_common(LEGEND)
        return shown._replace(cells=cells, legend=legend)
    if row.form == "chart":
        return shown._replace(chart=_chart(row))
    if row.form == "text" and len(row.table.columns) <= LINE_COLUMNS:
        return shown._replace(line=_token_line(row.table, row.contributions))
    return shown._replace(table=_token_table(row.table, row.contributions))


def _cells(row: DescribedRow) -> list[tuple[int, int, LineToken]]:
    assert row.tokens is not None, "ids of a strip"
    (texts,), positions = row.table.columns.values(), row.table.positions
    tokens = [_line_token(shortened(text, MAX_TOKEN), row.contributions, index) for index, text in enumerate(texts)]
    return list(zip(row.tokens[positions].tolist(), positions, tokens, strict=True))


def _chart(row: DescribedRow) -> Markup:
    assert row.tokens is not None and row.values is not None, "numbers of a chart"
    contributions, names = row.contributions or [], [shortened(name, 30) for name in row.table.columns]
    largest = max(map(abs, contributions), default=0.0)
    places = zip(row.table.positions, contributions, strict=False)
    bands = [(position, value / largest) for position, value in places if value]
    return sequence_chart(names, row.values, row.tokens[:, : len(names)], bands)


def _token_line(table: TokenTable, contributions: Sequence[float] | None) -> list[LineToken]:
    """Return the first and last tokens of a row, at least one of each, in at most `MAX_LINE` characters."""
    tokens = [shortened(" ".join(texts), MAX_TOKEN) for texts in zip(*table.columns.values(), strict=True)]
    most = len(tokens)
    while most > 2 and len(" | ".join(tokens[index] for index in _ends(len(tokens), most))) > MAX_LINE:
        most -= 2
    line: list[LineToken] = []
    done = 0  # number of tokens of the row that the line covers so far
    for index in _ends(len(tokens), most):
        position = table.positions[index]
        line += [_gap(position - done)] * (position > done)
        line.append(_line_token(tokens[index], contributions, index))
        done = position + 1
    return line + [_gap(table.length - done)] * (done < table.length)


def _ends(count: int, most: int) -> list[int]:
    shown = list(range(count))
    return shown if most == count else [*shown[: most // 2], *shown[-(most // 2) :]]


def _line_token(text: str, contributions: Sequence[float] | None, index: int) -> LineToken:
    if contributions is None:
        return LineToken(text)
    value = contributions[index]
    side, largest = "supports" if value > 0 else "opposes", max(map(abs, contributions)) or 1.0
    return LineToken(text or BLANK, side, f"{100 * abs(value) / largest:.0f}%", _contribution(value))


def _gap(count: int) -> LineToken:
    return LineToken(f"… {count:,} more …")


def _contribution(value: float) -> str:
    return f"{value:+.2f}"


def _token_table(table: TokenTable, contributions: Sequence[float] | None) -> Table:
    columns = dict(list(table.columns.items())[:MAX_COLUMNS])
    kinds = {
        shortened(name, 30): "number" if all(map(NUMERIC.match, filter(None, texts))) else "text"
        for name, texts in columns.items()
    }
    values = [[] if contributions is None else [_contribution(contributions[i])] for i in range(len(table.positions))]
    rows: list[list[object]] = [
        [position + 1, *values[index], *(shortened(texts[index], 40) for texts in columns.values())]
        for index, position in enumerate(table.positions)
    ]
    shades = [_line_token("", contributions, index)[1:3] for index in range(len(rows))]
    caption = f"{len(rows):,} of {table.length:,} tokens"
    if more := list(table.columns)[MAX_COLUMNS:]:
        caption += f"; more columns: {listed(more)}"
    headings = {"token": "number"} | ({} if contributions is None else {"contribution": "number"})
    return Table({**headings, **kinds}, rows, caption=caption, shades=shades)
