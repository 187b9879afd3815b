"""A second process that ends a command which does not end itself after a signal, and reports a crash.

A signal handler of Python runs between two instructions of Python. A model, a query or a library that computes for
hours inside one instruction would therefore hold up the end of a command. The C library of the process writes the
number of a signal to a pipe at once (`signal.set_wakeup_fd`). The watchdog, a fork of the process, reads the pipe and
kills the process after `GRACE_S` seconds. The process keeps its number, its terminal and its parent.

A killed or crashed process cannot print why it ended. The watchdog prints the line.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from seqclf.system.file_locks import call_in_child
from seqclf.system.memory_errors import MEMORY_REMEDY

GRACE_S = 5.0  # seconds that a process has to end after a signal
REPEAT_S = 1.0  # a signal within this time of the first one is the same request, such as `timeout` sends to a group
SAY_S = 1.0  # seconds that a terminal or pipe has to take a line
CHECK_S = 0.5  # seconds between two checks whether the process still runs
PATIENT, IMPATIENT = 254, 255  # bytes in the pipe that are not numbers of signals
CRASHED = f"error: the process was killed or crashed, most often because the memory was full; {MEMORY_REMEDY}"
_pipes: list[int] = []  # write end of the pipe of this process's watchdog, if it has one


@contextmanager
def watched(numbers: tuple[int, ...]) -> Iterator[None]:
    """Run the `with` block beside a watchdog for the signals `numbers`, which must have handlers of Python.

    The block runs without a watchdog inside of another block, where the system has no fork, and in the first process of
    a container, which nothing inside of the container can kill.
    """
    process = os.getpid()
    is_main = threading.current_thread() is threading.main_thread()
    if _pipes or process == 1 or not is_main or not hasattr(os, "fork"):
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # The watchdog keeps all signals blocked, as a job system may send any of them to the group of processes. In this
    # process, a signal before `try` would leave the watchdog behind.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = 0
    with suppress(OSError):  # without memory for a process, the block runs without a watchdog
        child = os.fork() or -1
    if child < 0:
        try:
            for inherited in {0, 1, writing} - {reading}:  # a reader of the output waits until no process has it open
                with suppress(OSError):
                    os.close(inherited)
            _watch(process, reading, numbers)
        finally:
            os._exit(0)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _pipes.append(writing)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        finally:  # also if a signal that came before is raised here
            is_own = os.getpid() == process
            try:  # end the watchdog before the pipe, whose end would look like a crash
                if is_own and child:
                    with suppress(OSError):
                        os.kill(child, signal.SIGKILL)
                        os.waitpid(child, 0)
            finally:  # also if another thread took a signal, which is raised in this one
                if is_own:
                    signal.set_wakeup_fd(before)
                    os.close(_pipes.pop())
                    os.close(reading)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def is_watched() -> bool:
    """Return True if a watchdog watches this process."""
    return bool(_pipes)


def _leave_to_parent() -> None:
    """In a fork of a watched process, such as a data loader worker, write no signals to the parent's watchdog."""
    if _pipes:
        signal.set_wakeup_fd(-1)
        os.close(_pipes.pop())


call_in_child(_leave_to_parent)


@contextmanager
def patience() -> Iterator[None]:
    """While the `with` block runs, the process ends itself after a first signal, in its own time."""
    _tell(PATIENT)
    try:
        yield
    finally:
        _tell(IMPATIENT)


def _tell(byte: int) -> None:
    for pipe in _pipes:
        with suppress(OSError):
            os.write(pipe, bytes([byte]))


def _watch(process: int, pipe: int, numbers: tuple[int, ...]) -> None:
    first = end = None  # time of the first signal, and time at which the process is killed
    received, is_patient = 0, False
    while os.getppid() == process:
        if not select.select([pipe], [], [], CHECK_S)[0]:
            content = None
        elif not (content := os.read(pipe, 64)):
            break  # the process has ended
        now = time.monotonic()
        for byte in content or b"":
            if byte in (PATIENT, IMPATIENT):
                is_patient = byte == PATIENT
            elif byte in numbers:
                is_repeated = first is not None and now - first > REPEAT_S
                first, received = first or now, received or byte
                if end is None and (is_repeated or not is_patient):
                    end = now + GRACE_S
        if end is not None and now > end and os.getppid() == process:
            os.kill(process, signal.SIGKILL)  # first, because a terminal that is paused takes no line
            _say(f"stopped by {signal.Signals(received).name}, as it had not ended after {GRACE_S:.0f} s")
            return
    _say(CRASHED)


def _say(line: str) -> None:
    with suppress(OSError):
        if select.select([], [2], [], SAY_S)[1]:
            os.write(2, f"{line}\n".encode())
