"""Display of the progress of long-running work: one line on stderr with a bar, the speed and the remaining time.

`advance` only adds a number, and a thread of the library rich draws the line, after `DELAY_S` seconds of work and only
in a terminal. The environment variable `SEQCLF_PROGRESS=0` turns the display off.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seqclf.system.atomic_files import call_in_child
from seqclf.system.durations import duration_text

Item = TypeVar("Item")
DELAY_S = 1.5  # seconds; shorter work shows no progress line


@dataclass(eq=False)
class Stage:
    """A stage of work, such as reading a file, whose progress is displayed, with a `note` such as the current loss.

    `total`: number of units of work, or `None` if it is unknown. `completed`: number of completed units.
    """

    title: str
    total: float | None = None
    unit: str = ""
    completed: float = 0.0
    note: str = ""
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.title = "".join(letter if letter.isprintable() else " " for letter in self.title)

    def advance(self, amount: float = 1) -> None:
        self.completed += amount

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def is_long(self) -> bool:
        return self.seconds >= DELAY_S

    @property
    def rate(self) -> float:
        return self.completed / max(self.seconds, 1e-9)

    def row(self) -> tuple[str, float | None, str]:
        """Return the title, the completed fraction or `None`, and the text of the progress line.

        >>> stage = Stage("reading", total=1000, unit="rows", completed=250, started=time.monotonic() - 5)
        >>> stage.row()
        ('reading', 0.25, '25%  15 s left  250 of 1,000 rows  50 rows/s')
        """
        share = self.completed / (self.total or math.inf)
        fraction = share if 0 < share <= 1 else None  # above 1, an estimated total was too low
        seconds = round(((self.total or 0.0) - self.completed) / self.rate if fraction else self.seconds)
        figures = [
            f"{fraction:.0%}  {duration_text(seconds)} left" if fraction else duration_text(seconds),
            *self.counts(f" of {self.total:,.0f}" if self.total and fraction else ""),
            self.note,  # put the note last, because a narrow terminal cuts off the end of the line
        ]
        return self.title, fraction, "  ".join(filter(None, figures))

    def summary(self) -> str:
        """Return the line that is printed when the stage has ended."""
        return f"{self.title}: {', '.join([*self.counts(), duration_text(self.seconds)])}"

    def counts(self, of: str = "") -> list[str]:
        """Return the number of completed units, followed by `of` (" of 1,000"), and the speed, or nothing."""
        if not self.completed or not self.unit:
            return []
        speed = f"{self.rate:,.0f}" if self.rate >= 10 else f"{self.rate:.2g}"
        return [f"{self.completed:,.0f}{of} {self.unit}", f"{speed} {self.unit}/s"]


class Display:
    """Display of one progress line, of the innermost stage that has run for at least `DELAY_S` seconds."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.lock = threading.Lock()
        self.line: Any = None  # TerminalLine, or None if no line is shown
        self.hidden = 0  # above 0 if stages that begin are not shown

    def begin(self) -> None:
        """Show the progress line, unless a line is shown already or no long stage is running."""
        from seqclf.system.progress_line import TerminalLine

        with self.lock:
            if self.line is None and self.row():
                self.line = TerminalLine(self.row)
                self.line.start(refresh=True)

    def row(self) -> tuple[str, float | None, str] | None:
        """Return `Stage.row()` of the innermost long stage, or `None` if no long stage is running."""
        return next((stage.row() for stage in reversed(self.stages) if stage.is_long), None)

    def end(self, ended: Stage, summary: bool) -> None:
        """End a stage, and the line unless another long stage runs. `summary`: print the duration of a long stage."""
        self.stages.remove(ended)
        with self.lock, suppress(OSError, ValueError):  # ignore a closed terminal, so that the work continues
            if self.line is not None and summary and ended.is_long:
                self.line.console.print(ended.summary())
            if self.line is not None and not self.row():
                line, self.line = self.line, None
                line.stop()


DISPLAY = Display()


@contextmanager
def stage(title: str, *, total: float | None = None, unit: str = "", summary: bool = True) -> Iterator[Stage]:
    """Show the progress of the `with` block (see `Stage`), and with `summary` the duration of a long one.

    >>> with stage("reading train.csv", total=3, unit="rows") as reading:
    ...     for row in range(3):
    ...         reading.advance()
    >>> reading.completed
    3.0
    """
    current = Stage(title, total, unit)
    if not is_shown():
        yield current
        return
    DISPLAY.stages.append(current)
    delay = threading.Timer(DELAY_S, DISPLAY.begin)
    delay.daemon = True
    delay.start()
    finished = False
    try:
        yield current
        finished = True
    finally:
        delay.cancel()
        DISPLAY.end(current, summary and finished)


def track(
    items: Iterable[Item],
    title: str,
    *,
    total: float | None = None,
    unit: str = "",
    size: Callable[[Item], float] = lambda item: 1,
) -> Iterator[Item]:
    """Yield the items of an iterable, and show the progress of the loop. `size`: number of units of an item, or 1.

    >>> list(track("abc", "reading", total=3))
    ['a', 'b', 'c']
    """
    with stage(title, total=total, unit=unit) as current:
        for item in items:
            yield item
            current.advance(size(item))


def advance(unit: str, amount: float) -> None:
    """Add completed units to the innermost stage if `unit` is its unit, where no `Stage` is at hand."""
    if DISPLAY.stages and DISPLAY.stages[-1].unit == unit:
        DISPLAY.stages[-1].advance(amount)


def skip() -> None:
    """Begin the innermost stage anew, without what it has completed: the results of an earlier process."""
    if DISPLAY.stages:
        current = DISPLAY.stages[-1]
        current.total = current.total and current.total - current.completed
        current.completed, current.started = 0.0, time.monotonic()


def is_shown() -> bool:
    """Return True in a terminal, in one process on each machine."""
    if DISPLAY.hidden or os.environ.get("SEQCLF_PROGRESS") == "0" or os.environ.get("LOCAL_RANK", "0") != "0":
        return False
    with suppress(AttributeError, ValueError):  # stderr may be None or closed
        return os.environ.get("TERM") != "dumb" and sys.stderr.isatty()
    return False


def _forget_parent() -> None:
    """Reset the display in a fork, which has no drawing thread, and maybe a lock that is never released."""
    if DISPLAY.line is not None:
        DISPLAY.line.redirects.close()
    DISPLAY.__init__()  # type: ignore[misc]


call_in_child(_forget_parent)
