"""The progress line in a terminal, drawn by a thread of rich, whose slow import waits for the first line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Any

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

Row = tuple[str, float | None, str]  # title, completed fraction (None if unknown) and further text
MAX_BAR_WIDTH = 30  # characters


def line_of(row: Row | None) -> Table | str:
    """Return the progress line of `Stage.row`. In a narrow terminal, the bar narrows, then texts are cut off."""
    if row is None:
        return ""
    title, fraction, figures = row
    grid = Table.grid(Column(no_wrap=True), Column(max_width=MAX_BAR_WIDTH), Column(no_wrap=True), padding=(0, 2, 0, 0))
    grid.add_row(title, ProgressBar(1, fraction) if fraction else "", figures)
    return grid


class TerminalLine(Live):
    """The progress line at the bottom of a terminal. Text that the program prints appears above the line."""

    def __init__(self, row: Callable[[], Row | None]):
        # Write to `sys.__stderr__`, because a library may have redirected sys.stderr. With soft_wrap=True, rich does
        # not break long lines.
        console = Console(file=sys.__stderr__, soft_wrap=True, highlight=False, markup=False, emoji=False)
        # Do not hide the cursor, because a killed process could not show the cursor again.
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]
        super().__init__(
            get_renderable=lambda: line_of(row()),
            console=console,
            transient=True,
            redirect_stdout=False,  # the method `start` redirects streams that are terminals
            redirect_stderr=False,
        )
        self.redirects = ExitStack()

    def start(self, refresh: bool = False) -> None:
        super().start(refresh)
        for redirect, stream in ((redirect_stdout, sys.stdout), (redirect_stderr, sys.stderr)):
            if getattr(stream, "isatty", bool)():
                self.redirects.enter_context(redirect(_Above(self.console, stream)))

    def stop(self) -> None:
        self.redirects.close()
        super().stop()


class _Above(FileProxy):
    """A stream that prints its text above the progress line."""

    @property
    def rich_proxied_file(self) -> Any:
        """The stream of other rich consoles: in the base class it is the terminal, and they would damage the line."""
        return self
