"""Commands in a pseudo terminal, as a user runs them: what the terminal shows, and what a signal does."""

import os
import pty
import select
import signal
import subprocess
import sys
import time


def run_in_terminal(command, folder=None, environment=None, interrupt_at=None, timeout=60.0, columns=100):
    """Run `python COMMAND…` with a pseudo terminal as its stdout and stderr. Return its exit code and all output.

    `interrupt_at`: text after which SIGINT is sent, once it was printed.
    """
    master, slave = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", **(environment or {})}
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=variables, stdin=slave, stdout=slave, stderr=slave, close_fds=True
    )
    os.close(slave)
    output, interrupted, end = b"", False, time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    chunk = os.read(master, 65536)
                except OSError:  # the process has closed the terminal
                    break
                if not chunk:
                    break
                output += chunk
            if interrupt_at is not None and not interrupted and interrupt_at.encode() in output:
                process.send_signal(signal.SIGINT)
                interrupted = True
        else:
            raise AssertionError(f"still running after {timeout} s: {output[-2000:].decode(errors='replace')}")
        return process.wait(timeout=10), output.decode(errors="replace")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def screen(output):
    """Return the lines that stay on a terminal: `\\r` starts a line anew, and `\\x1b[K` erases the rest of it."""
    lines = []
    for line in output.replace("\r\n", "\n").split("\n"):
        cells = []
        for part in line.split("\r"):
            erased = part.split("\x1b[K")
            cells = [*erased[0], *cells[len(erased[0]) :]] if len(erased) == 1 else [*erased[-1]] or []
        lines.append("".join(cells).rstrip())
    return lines
