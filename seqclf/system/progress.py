"""Progress of long stages: one line on stderr with a bar, the rate and the time left.

A stage costs nothing that could be measured: `advance` adds a number, and a thread draws the line five times a second,
once the stage has taken longer than `DELAY_S`. There is no line unless stderr is a terminal or the process a notebook.
`SEQCLF_PROGRESS=0` turns it off there too.

While the line is shown, stdout and stderr erase it before they write, so that it never mixes with other output.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar

from seqclf.system.file_locks import call_in_child
from seqclf.system.progress_line import notebook_width, progress_line, summary_line

Item = TypeVar("Item")
DELAY_S = 1.5  # stages that end sooner show nothing
INTERVAL_S = 0.2
ERASE = "\r\x1b[K"
USUAL_WIDTH = 80
NOTEBOOK_LINE = "seqclf-progress"  # begins the name of an output of a notebook


class Stage:
    """A stage of the work: `completed` of `total` units, and a `note` such as the present loss.

    `total`: None if it is unknown. `share`: returns the completed share where another library counts, else None.
    """

    __slots__ = ("completed", "ended", "note", "share", "shown", "started", "title", "total", "unit")

    def __init__(self, title: str, total: float | None, unit: str, share: Callable[[], float | None] | None):
        self.title = title
        self.total = total
        self.unit = unit
        self.share = share
        self.completed = 0.0
        self.note = ""
        self.shown = False
        self.ended = False
        self.started = time.monotonic()

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more units as completed."""
        self.completed += amount

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self.started


@contextmanager
def stage(
    title: str,
    *,
    total: float | None = None,
    unit: str = "",
    share: Callable[[], float | None] | None = None,
    summary: bool = True,
) -> Iterator[Stage]:
    """Show the progress of the block. `summary`: leave a line with its duration, if it was shown at all.

    >>> with stage("reading train.csv", total=3, unit="rows") as reading:
    ...     for row in range(3):
    ...         reading.advance()
    >>> reading.completed
    3.0
    """
    current = Stage(title, total, unit, share)
    if not is_shown():
        yield current
        return
    DISPLAY.begin(current)
    finished = False
    try:
        yield current
        finished = True
    finally:
        DISPLAY.end(current, summary and finished)


def track(
    items: Iterable[Item],
    title: str,
    *,
    total: float | None = None,
    unit: str = "",
    size: Callable[[Item], float] | None = None,
) -> Iterator[Item]:
    """Yield the same items and show the progress. `size`: units of an item, which is one unit without it.

    >>> list(track("abc", "reading", total=3))
    ['a', 'b', 'c']
    """
    with stage(title, total=total, unit=unit) as current:
        for item in items:
            yield item
            current.advance(1 if size is None else size(item))


def advance(unit: str, amount: float) -> None:
    """Count units of the innermost stage, if it counts the same `unit`: for code that does not know its stage."""
    stages = DISPLAY.stages
    current = stages[-1] if stages else None
    if current is not None and current.unit == unit:
        current.advance(amount)


def is_shown() -> bool:
    """Return whether progress is shown: on a terminal or in a notebook, by the first process of a training run."""
    if DISPLAY.hidden or os.environ.get("SEQCLF_PROGRESS") == "0" or os.environ.get("LOCAL_RANK", "0") != "0":
        return False
    return in_notebook() or (os.environ.get("TERM") != "dumb" and _is_terminal(sys.stderr))


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress of the stages that begin inside the block, in any thread."""
    DISPLAY.hidden += 1
    try:
        yield
    finally:
        DISPLAY.hidden -= 1


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _is_terminal(stream: Any) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


class Display:
    """The line of the innermost stage that has been running for `DELAY_S`, drawn by a thread while there are stages."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.lock = threading.RLock()
        self.wake = threading.Event()
        self.thread: threading.Thread | None = None
        self.stream: Any = None  # the terminal, even while a library has redirected stderr
        self.drawn = ""  # the text that stands in the line
        self.guards: list[Guard] = []
        self.hidden = 0  # blocks of `hidden`
        self.outputs = 0  # of a notebook, each of which holds the line of one cell's stages
        self.has_output = False

    def begin(self, current: Stage) -> None:
        """Add a stage. The thread starts with the first one."""
        with self.lock:
            if not self.stages:
                self.stream = sys.stderr.stream if isinstance(sys.stderr, Guard) else sys.stderr
            self.stages.append(current)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self.thread.start()

    def end(self, current: Stage, summary: bool) -> None:
        """Remove a stage and its line, and leave a summary of a stage that was shown."""
        with self.lock:
            current.ended = True
            self.stages.remove(current)
            if current.shown:
                self.erase()
                if summary and not in_notebook():
                    self._write(summary_line(current.title, current.completed, current.unit, current.seconds) + "\n")
            if not self.stages:
                self._release()

    def erase(self) -> None:
        """Remove the line, until the thread draws it again."""
        with self.lock:
            if self.drawn:
                self._replace("")

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            with self.lock:
                if not self.stages:
                    self.thread = None
                    return
                self._draw()

    def _draw(self) -> None:
        visible = [stage for stage in self.stages if stage.seconds >= DELAY_S]
        if not visible or any(guard.in_line for guard in self.guards):
            return
        current = visible[-1]
        if not self.guards:
            self._guard()
        current.shown = True
        share = _share(current)
        text = progress_line(
            current.title,
            current.completed,
            current.total,
            current.unit,
            current.seconds,
            share,
            current.note,
            self._width(),
        )
        self._replace(text)

    def _replace(self, text: str) -> None:
        """Show `text` in place of the line."""
        self.drawn = text
        if not in_notebook():
            self._write(f"\r{text}\x1b[K" if text else ERASE)
            return
        # An output that is replaced. A notebook would save every line that was written to a stream.
        from IPython.display import display

        if not self.has_output:
            self.outputs += 1
        display(
            {"text/plain": text},
            raw=True,
            display_id=f"{NOTEBOOK_LINE}-{os.getpid()}-{self.outputs}",
            update=self.has_output,
        )
        self.has_output = True

    def _write(self, text: str) -> None:
        # A broken pipe or a closed terminal must not stop the work.
        with suppress(OSError, ValueError):
            self.stream.flush()
            # Not `stream.write`, which a logger may have wrapped to record the output.
            os.write(self.stream.fileno(), text.encode(self.stream.encoding or "utf-8", "replace"))

    def _width(self) -> int:
        if in_notebook():
            return notebook_width()
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return columns or USUAL_WIDTH  # a terminal without a size says 0

    def _guard(self) -> None:
        """Let stderr, and stdout if it is the same terminal, erase the line before they write."""
        if in_notebook():  # its line is an output of its own
            return
        for name in ("stderr", "stdout"):
            stream = getattr(sys, name)
            if _is_terminal(stream):
                self.guards.append(Guard(stream, self))
                setattr(sys, name, self.guards[-1])

    def _release(self) -> None:
        for name in ("stderr", "stdout"):
            guard = getattr(sys, name)
            if isinstance(guard, Guard) and guard in self.guards:
                setattr(sys, name, guard.stream)
        self.guards = []
        self.has_output = False


class Guard:
    """A stream that erases the progress line before it writes. `in_line`: the last text did not end its line."""

    def __init__(self, stream: TextIO, display: Display):
        self.stream = stream
        self.display = display
        self.in_line = False

    def write(self, text: str) -> int:
        with self.display.lock:
            self.display.erase()
            if text:
                self.in_line = not text.endswith("\n")
            return self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _share(current: Stage) -> float | None:
    if current.share is None:
        return None
    try:
        return current.share()
    except Exception:  # of any library, and no reason to stop the work that it counts
        return None


def _forget_parent() -> None:
    """Start anew in a fork, which has no drawing thread and may have inherited a held lock."""
    DISPLAY._release()
    DISPLAY.__init__()  # type: ignore[misc]


DISPLAY = Display()
call_in_child(_forget_parent)
