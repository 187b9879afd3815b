"""Terminal output: the console of all commands, notes and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from seqclf.documents.formatting import warning_lines

MAX_CLASSES = 25


def make_console() -> Console:
    """Return the console of all output: on stderr, or in a notebook, where stderr is red, as plain text on stdout.

    rich's own form for notebooks does not wrap lines, and is a separate output for each.
    """
    in_notebook = Console().is_jupyter
    # Labels and paths may look like markup.
    return Console(
        stderr=not in_notebook,
        force_jupyter=False,
        force_terminal=False if in_notebook else None,  # its stdout claims to be a terminal, but shows no bars
        color_system="standard" if in_notebook else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


console = make_console()


def show_warnings(warnings: Sequence[str]) -> None:
    """Print the warnings of a survey, leaks included. No other function prints a warning about the data."""
    for line in warning_lines(warnings):
        console.print(f"data: {line}", style="yellow", soft_wrap=True)


def show_note(text: str) -> None:
    """Print one line about something that was left out, while the command goes on."""
    console.print(text, style="yellow", soft_wrap=True)
