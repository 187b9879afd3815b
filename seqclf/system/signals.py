"""Handling of the signals SIGTERM, SIGINT (Ctrl-C) and SIGHUP, which end a command.

The handler raises `Terminated` in the main thread, so that temporary files are removed before the process ends, with
128 + the signal number. Python runs it between two of its instructions: a query or a model that computes inside one
ends first.

During training, the handler only records a signal (see `deferred_signals`), and after each batch the training loop asks
`requested()`, writes a checkpoint and ends. A second signal does not wait.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

# Windows has no SIGHUP.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
# Seconds in which further signals are the same request: a launcher and a job system each send one to every rank, and a
# rank that already ends would lose its advice. A second Ctrl-C comes from a person.
REPEAT_S = 3.0


class Terminated(SystemExit):
    """Exception that a signal raises, which ends the process with the exit code 128 + the signal number."""

    def __init__(self, received: int):
        super().__init__(128 + received)
        self.name = signal.Signals(received).name
        self.advice = ""  # text for the user, such as how to resume; printed when the command ends

    @property
    def message(self) -> str:
        """The line that says what ended the command, with the advice."""
        return "; ".join(filter(None, (f"stopped by {self.name}", self.advice)))


class _SignalState:
    installed = False
    received: int | None = None
    deferred = False
    ended: Terminated | None = None  # raised already; raised again, as its advice is for the user
    since = 0.0  # time of the first signal, or of the end that it led to


def install() -> dict[int, Any]:
    """Install the handler for all `SIGNALS` that are not ignored (as by nohup). Return those before."""
    forget()
    _SignalState.installed, before = True, {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            before[number] = signal.getsignal(number)
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, _receive)
    return before


def forget() -> None:
    """Forget the signals received so far, and that the handler is installed."""
    _SignalState.installed, _SignalState.received, _SignalState.deferred, _SignalState.ended = False, None, False, None


@contextmanager
def ending_command() -> Iterator[None]:
    """Handle signals while the `with` block runs a command, and end the process with the signal's exit code.

    The innermost of nested blocks handles the signal, as the command `seqclf` runs other commands.
    """
    is_outer = not _SignalState.installed
    before = install() if is_outer else {}  # in an inner block, `install` would forget a signal
    try:
        with raised():
            yield
    except Terminated as end:
        traceback.clear_frames(end.__traceback__)  # close files and threads of suspended generators
        if end.code:
            # One write for text and line end. The ranks of a training share a terminal. Without buffers, as torchrun
            # starts Python, print makes two writes, and another rank may write between them.
            with suppress(OSError, AttributeError):  # stderr may be closed or on a full disk
                sys.stderr.write(f"{end.message}\n")
        _SignalState.received = None  # the message about the signal is printed
        before = {number: signal.SIG_DFL for number in before if signal.getsignal(number) is _receive}
        sys.exit(end.code)
    finally:
        if is_outer:
            _restore(before)


@contextmanager
def handled() -> Iterator[None]:
    """Handle signals while the `with` block runs, and then restore the previous handlers, those of another program.

    If a signal ends the block, the previous handler gets it. If that does not end the process, a KeyboardInterrupt with
    a message about how to resume is raised. Other threads than the main thread run without signal handling.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = install()
    ended: Terminated | None = None
    try:
        with raised():
            yield
    except Terminated as end:
        ended = end
    finally:
        _restore(before)
    if ended is not None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.Signals[ended.name])
        raise KeyboardInterrupt(ended.message)


def reinstall() -> None:
    """Install the handler of SIGTERM again, because Lightning and Ray replace it."""
    if _SignalState.installed:
        signal.signal(signal.SIGTERM, _receive)


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None:  # None stands for a handler that was not set in Python and cannot be restored
            signal.signal(number, handler)
    forget()


def _receive(number: int, frame: Any) -> None:
    if _SignalState.received is None:
        _SignalState.received, _SignalState.since = number, time.monotonic()
        if _SignalState.deferred:
            return
    elif number != signal.SIGINT and time.monotonic() < _SignalState.since + REPEAT_S:
        return
    end()


def requested() -> bool:
    """Return True if the handler received a signal."""
    return _SignalState.received is not None


def raise_lost() -> None:
    """Raise `Terminated` if a signal was received and is not deferred. Call it after DuckDB, which may drop it."""
    if requested() and not _SignalState.deferred:
        end()


def end() -> NoReturn:
    """Raise `Terminated` for the received signal, or for SIGTERM if another process received it."""
    _SignalState.received, _SignalState.since = _SignalState.received or signal.SIGTERM, time.monotonic()
    _SignalState.ended = _SignalState.ended or Terminated(_SignalState.received)
    raise _SignalState.ended


@contextmanager
def raised() -> Iterator[None]:
    """Raise `Terminated` at the end of the `with` block if a signal was received.

    The one that the handler raises may get lost: DuckDB replaces it by another error if the signal interrupts a query,
    and Python drops every exception in a finalizer.
    """
    try:
        yield
    except Terminated:
        raise
    except BaseException:
        if _SignalState.received is None:
            raise
    if _SignalState.received is not None:
        end()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Record signals while the outermost such block runs, and raise `Terminated` at its end if there was one."""
    outer, _SignalState.deferred = _SignalState.deferred, True
    with nullcontext() if outer else raised():  # the end looks for a signal when none is deferred any more
        try:
            yield
        finally:
            _SignalState.deferred = outer
