"""Terminal output of all commands: the console, and functions that print documents, notes and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from textwrap import wrap
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Cell

from seqclf.documents.blocks import Alerts, Block, Code, Folded, Section, Table, Text, limited_table
from seqclf.documents.formatting import printable, shortened, warning_lines

MAX_CLASSES = 25
MAX_ROWS = 14  # printed rows of a table
MAX_CELL = 90  # characters of a table cell
MIN_NUMBER, MIN_TEXT = 12, 20  # minimum width of a column, in characters, if its heading or text is wrapped


class SafeConsole(Console):
    """A console that replaces control characters, because names of a received file could command the terminal.

    A message that cannot be written, for example to a file on a full disk, does not end the command.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError):
            super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Cell:
        return super().render_str(printable(text, keep="\n\t\u200e\u200f"), **options)


def make_console() -> Console:
    """Create the console for all output, on stderr, but in a notebook on stdout."""
    # A notebook shows stderr in red, and in the format of Rich does not wrap lines.
    in_notebook = Console().is_jupyter
    # Rich markup and emoji codes are off, because labels and paths may contain similar text.
    return SafeConsole(
        stderr=not in_notebook,
        force_jupyter=False,
        force_terminal=False if in_notebook else None,  # a notebook claims to be a terminal
        color_system="standard" if in_notebook else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


console = make_console()


def show_section(section: Section) -> None:
    """Print the heading of a section and its blocks. A section without printed blocks has no heading."""
    if section.printed:
        show_line(f"\n{section.heading}", "bold")
    for block in section.printed:
        show_block(block)


def show_block(block: Block) -> None:
    """Print one block. Figures and heat maps are not printed."""
    match block:
        case Text():
            show_line(block.text, block.style)
        case Code():
            show_line(block.text)
        case Alerts():
            for line in block.lines:
                show_line(line, block.style)
        case Table():
            show_table(block)
        case Folded():
            show_line(f"{block.title}:")
            for inner in block.blocks:
                show_block(inner)


def show_line(text: str, style: str = "") -> None:
    """Print a line without wrapping, so that a path or an override in the line can be copied."""
    console.print(text, style=style or None, soft_wrap=True)


def show_table(table: Table, most: int = MAX_ROWS) -> None:
    """Print the first and the last rows of a table, `most` rows in all, without bar columns.

    Numbers are never wrapped. If the table is too wide, number columns are removed, starting from the right.
    """
    if not table.rows:
        return
    table = limited_table(table, most)
    columns = []
    for index, (heading, kind) in enumerate(table.columns.items()):
        if kind != "bar":
            cells = [Cell(shortened(row[index], MAX_CELL)) if index < len(row) else Cell() for row in table.rows]
            columns.append(_Column(printable(heading.strip(), keep="\n"), cells, kind.startswith("number")))
    if _width(columns) > console.width:
        columns = [column.wrapped() for column in columns]
    while len(columns) > 2 and columns[-1].is_number and _width(columns) > console.width:
        columns.pop()
    if table.caption:
        show_line(f"{table.caption}:")
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        justify: Any = "right" if column.is_number else "left"
        grid.add_column(Cell(column.heading), justify=justify, no_wrap=column.is_number, overflow="fold")
    for position, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        grid.add_row(*row, style="bold" if position == table.strong else "")
    console.print(grid)


class _Column(NamedTuple):
    heading: str
    cells: list[Cell]
    is_number: bool

    @property
    def width(self) -> int:
        widest = max(map(cell_len, [*self.heading.splitlines(), *(cell.plain for cell in self.cells)]))
        return widest if self.is_number else min(MIN_TEXT, widest)  # a text column can be wrapped

    def wrapped(self) -> _Column:
        widest = max(MIN_NUMBER, *(cell.cell_len for cell in self.cells))
        return self._replace(heading="\n".join(wrap(self.heading, widest))) if self.is_number else self


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width + 2 for column in columns) - 2  # two spaces between columns


def show_warnings(warnings: Sequence[str]) -> None:
    """Print the warnings of a dataset survey."""
    for line in warning_lines(warnings):
        show_line(f"data: {line}", "yellow")


def show_note(text: str) -> None:
    """Print a note about a problem that did not stop the command."""
    show_line(text, "yellow")
