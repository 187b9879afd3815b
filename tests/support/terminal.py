"""Commands in a pseudo terminal, as a user runs them: what the terminal shows, and what a signal does."""

import os
import pty
import re
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
    """Return the lines that stay on a terminal, without colors, of what rich and plain programs write."""
    lines, row, column = [[]], 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", output, re.DOTALL):
        if token == "\n":
            row += 1
            lines.extend([] for _ in range(row + 1 - len(lines)))
        elif token == "\r":
            column = 0
        elif token.endswith("A") and len(token) > 1:
            row -= int(token[2:-1])
        elif token == "\x1b[2K":
            lines[row] = []
        elif len(token) == 1:
            cells = lines[row]
            cells.extend(" " * (column + 1 - len(cells)))
            cells[column] = token
            column += 1
    return ["".join(cells).rstrip() for cells in lines]
