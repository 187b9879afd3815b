"""Handling of the signals SIGTERM, SIGINT (Ctrl-C) and SIGHUP, which end a command.

The handler of these signals raises the exception `Terminated` in the main thread, so that temporary files are removed
before the process ends. The exit code of the process is 128 + the signal number. A process that does not end within
seconds is killed (see `watchdog`).

During training, the handler only records a signal (see `deferred_signals`). After each batch, the training loop calls
`requested()`. If a signal was recorded, the training loop writes a checkpoint and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader
from typing import Any, NoReturn

from seqclf.system.watchdog import is_watched, watched

RETRY_S = 0.05  # seconds until a signal is sent again that came while a compiled module was loaded
# Windows has no SIGHUP.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


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


class _State:
    received: int | None = None
    deferred = False
    ending = False  # whether `Terminated` was raised
    loads = 0  # number of compiled modules that were being loaded at `install`


def install() -> None:
    """Install the handler `_receive` for all `SIGNALS`.

    If the process ignores a signal, the signal is still ignored. For example, a process that the command nohup started
    ignores SIGHUP.
    """
    _State.received, _State.deferred, _State.ending = None, False, False
    _State.loads = _loads(sys._getframe())
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _receive)


def receive(number: int) -> None:
    """Install the handler `_receive` for one more signal."""
    signal.signal(number, _receive)


@contextmanager
def ending_command() -> Iterator[None]:
    """Handle signals while the `with` block runs a command.

    If a signal ends the block, a message is printed on stderr, and the process ends with the exit code of the signal.
    Blocks may be nested, because the command `seqclf` runs other commands. The innermost block handles the signal.
    """
    is_outer = not _is_installed()
    if is_outer:  # in an inner block, `install` would forget a signal that an outer block recorded
        install()
    try:
        with watched(SIGNALS):
            try:
                with raised():
                    yield
            except Terminated as end:  # close files and threads of suspended generators while the watchdog runs
                traceback.clear_frames(end.__traceback__)
                raise
    except Terminated as end:
        if end.code:
            # One write for text and line end. The ranks of a training share a terminal. Without buffers, as torchrun
            # starts Python, print makes two writes, and another rank may write between them.
            with suppress(OSError, AttributeError):  # stderr may be closed or on a full disk
                sys.stderr.write(f"{end.message}\n")
        _State.received = None  # the message about the signal is printed
        for number in SIGNALS if is_outer else ():  # no watchdog runs any more, so another signal ends the process
            if signal.getsignal(number) is _receive:
                signal.signal(number, signal.SIG_DFL)
        sys.exit(end.code)


@contextmanager
def handled() -> Iterator[None]:
    """Handle signals while the `with` block runs, and then restore the previous handlers.

    Library functions use this context manager, because they run in the process of another program. If a signal ends the
    block, the previous handler is restored and gets the signal. If the previous handler does not end the process, a
    KeyboardInterrupt is raised, with a message about how to resume. In threads other than the main thread, the block
    runs without signal handling.
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
            if handler is not None:  # None stands for a handler that was not set in Python and cannot be restored
                signal.signal(number, handler)
        _State.received, _State.deferred, _State.ending = None, False, False
    if ended is not None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.Signals[ended.name])
        raise KeyboardInterrupt(ended.message)


def reinstall() -> None:
    """Install the handler of SIGTERM again, because Lightning replaces this handler in `fit`."""
    if _is_installed():
        signal.signal(signal.SIGTERM, _receive)


def _is_installed() -> bool:
    # Do not check SIGTERM, because Lightning replaces the handler of SIGTERM.
    return any(signal.getsignal(number) is _receive for number in SIGNALS if number != signal.SIGTERM)


def _receive(number: int, frame: Any) -> None:
    # While signals are deferred, a second SIGTERM is deferred too, and the watchdog gives the checkpoint some seconds.
    # While the command ends, it changes nothing: a new `Terminated` would lose the advice of the first, and break off
    # what the first one closes; without a watchdog, the first one may have been lost. A second Ctrl-C ends the process
    # at once.
    repeated = _State.ending or _State.received is not None
    if _State.ending and number != signal.SIGINT and is_watched():
        return
    is_deferred = _State.deferred and not (repeated and number == signal.SIGINT)
    # Some compiled modules abort the process if an exception is raised while they are loaded.
    if not is_deferred and _loads(frame) > _State.loads:
        with suppress(RuntimeError):  # no thread can start
            threading.Timer(RETRY_S, os.kill, (os.getpid(), number)).start()
            return
    _State.received = _State.received or number
    if not is_deferred:
        _State.ending = True
        raise Terminated(_State.received)


def _loads(frame: Any) -> int:
    """Return the number of compiled modules that are being loaded in `frame` and the frames that called it."""
    loading = {ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__}
    return sum(one.f_code in loading for one, _ in traceback.walk_stack(frame))


def requested() -> bool:
    """Return True if the handler received a signal."""
    return _State.received is not None


def raise_lost() -> None:
    """Raise `Terminated` if a signal was received, unless signals are deferred.

    Call this function after a DuckDB query, because DuckDB may drop the `Terminated` that the signal handler raised.
    """
    if requested() and not _State.deferred:
        end()


def end() -> NoReturn:
    """Raise `Terminated` for the received signal.

    In distributed training, another process may have received the signal. `Terminated` is then raised for SIGTERM.
    """
    _State.received, _State.ending = _State.received or signal.SIGTERM, True
    raise Terminated(_State.received)


@contextmanager
def raised() -> Iterator[None]:
    """Raise `Terminated` at the end of the `with` block if a signal was received.

    The `Terminated` that the signal handler raises may get lost. DuckDB replaces `Terminated` by another error if the
    signal interrupts a query. Python drops every exception that is raised in a finalizer.
    """
    try:
        yield
    except Terminated:
        raise
    except BaseException:
        if _State.received is None:
            raise
    if _State.received is not None:
        end()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Record signals while the `with` block runs. Raise `Terminated` at the end of the block if there was a signal."""
    _State.deferred = True
    try:
        with raised():
            yield
    finally:
        _State.deferred = False
