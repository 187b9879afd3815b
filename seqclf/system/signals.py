"""Signals that ask a command to end: SIGTERM, SIGINT (Ctrl-C) and SIGHUP.

A signal raises `Terminated` in the main thread, so that temporary files are removed on the way out. The exit code is
128 + its number. Training runs in `deferred_signals()`: the signal is only recorded, and the training loop asks
`requested()` after each optimizer step, where it can write a checkpoint to resume from.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

# Windows has no SIGHUP.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """Ends the process with exit code 128 + the number of the signal."""

    def __init__(self, received: int):
        super().__init__(128 + received)
        self.name = signal.Signals(received).name
        self.advice = ""  # how to resume, for the line that the command prints


class _State:
    received: int | None = None
    deferred = False


def install() -> None:
    """Handle the signals from now on, except those that the parent process ignores (as nohup does)."""
    _State.received, _State.deferred = None, False
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _receive)


def receive(number: int) -> None:
    """Handle another signal like these from now on."""
    signal.signal(number, _receive)


@contextmanager
def ending_command() -> Iterator[None]:
    """Handle the signals in a command: one that ends the block becomes a line on stderr and the exit code.

    Blocks may be nested, as `seqclf` runs the module of a command. The innermost one ends the process.
    """
    if not _is_installed():  # or a signal that an outer block has recorded would be lost
        install()
    try:
        with raised():
            yield
    except Terminated as end:
        if end.code:
            print("; ".join(filter(None, (f"stopped by {end.name}", end.advice))), file=sys.stderr)
        _State.received = None  # it is reported
        sys.exit(end.code)


@contextmanager
def handled() -> Iterator[None]:
    """Handle the signals inside the block only, for a function that runs in the process of somebody else.

    A signal ends the block as it ends a command. Then the handlers of before are back, and get the signal. Raises
    KeyboardInterrupt, with the advice how to resume, if they go on. Other threads than the main one handle no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    install()
    ended: Terminated | None = None
    try:
        with raised():
            yield
    except Terminated as end:
        ended = end
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: it was not set by Python, which cannot set it again
                signal.signal(number, handler)
        _State.received, _State.deferred = None, False
    if ended is not None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.Signals[ended.name])
        raise KeyboardInterrupt("; ".join(filter(None, (f"stopped by {ended.name}", ended.advice))))


def reinstall() -> None:
    """Handle SIGTERM again if `install` did, because Lightning replaces its handler in `fit`."""
    if _is_installed():
        signal.signal(signal.SIGTERM, _receive)


def _is_installed() -> bool:
    # Lightning replaces the handler of SIGTERM.
    return any(signal.getsignal(number) is _receive for number in SIGNALS if number != signal.SIGTERM)


def _receive(number: int, frame: Any) -> None:
    repeated = _State.received is not None
    _State.received = _State.received or number
    # A supervisor may repeat SIGTERM while a checkpoint is written for the first one. A second Ctrl-C does not wait.
    if not _State.deferred or (repeated and number == signal.SIGINT):
        raise Terminated(_State.received)


def requested() -> bool:
    """Return whether a signal was received."""
    return _State.received is not None


def raise_lost() -> None:
    """Raise `Terminated` if a signal was received that is not deferred: DuckDB may drop what it raised in a query."""
    if requested() and not _State.deferred:
        end()


def end() -> NoReturn:
    """Raise `Terminated` for the signal that this process, or another rank of its run, received."""
    _State.received = _State.received or signal.SIGTERM
    raise Terminated(_State.received)


@contextmanager
def raised() -> Iterator[None]:
    """Raise `Terminated` at the end of the block if a signal was received, instead of what the block raised.

    DuckDB reports a query that a signal interrupted as a separate error, and an exception in a finalizer is lost.
    """
    try:
        yield
    except Terminated:
        raise
    except BaseException:
        if _State.received is None:
            raise
    if _State.received is not None:
        raise Terminated(_State.received)


@contextmanager
def reported_outputs(*paths: str | Path | None) -> Iterator[None]:
    """Let the line of a signal that ends the block tell what became of the files that the block writes.

    A file is written completely or not at all (see `atomic_files`), so its state before and after tells.
    """
    outputs = [Path(path) for path in paths if path is not None]
    before = [_written_at(path) for path in outputs]
    try:
        with raised():
            yield
    except Terminated as end:
        for path, earlier in zip(outputs, before, strict=True):
            now = _written_at(path)
            fate = "was not written" if now is None else "is unchanged" if now == earlier else "was written"
            end.advice = "; ".join(filter(None, (end.advice, f"{path} {fate}")))
        raise


def _written_at(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return None


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Only record signals, and raise `Terminated` at the end of the block if there was one."""
    _State.deferred = True
    try:
        with raised():
            yield
    finally:
        _State.deferred = False
