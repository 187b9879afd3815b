"""Server that runs seqclf's commands in forks of one process, which has imported PyTorch and Lightning.

Starting Python and importing takes most of the seconds of a small command. A fork has separate memory, working folder,
environment and exit code, as a process started by a user has. All pytest workers share one server.
"""

import atexit
import gc
import json
import os
import runpy
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SERVERS: list[subprocess.Popen[bytes]] = []  # a process that nothing refers to would be reported as forgotten
START_TIMEOUT = COMMAND_TIMEOUT = 180.0  # seconds


class CommandServer(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """Serves requests of `request_command` until the process `owner` has ended."""

    request_queue_size = 64
    max_children = 64

    def __init__(self, path: str, owner: int):
        self.owner = owner
        super().__init__(path, CommandHandler)

    def service_actions(self) -> None:
        super().service_actions()
        try:
            os.kill(self.owner, 0)  # sends nothing, but fails once the process is gone
        except ProcessLookupError:
            shutil.rmtree(Path(str(self.server_address)).parent, ignore_errors=True)
            os._exit(0)


class CommandHandler(socketserver.StreamRequestHandler):
    """Runs one module as `__main__`, in the fork that the server made for the request."""

    def handle(self) -> None:
        request = self.rfile.readline()
        if not request:  # `start_server` only tries if somebody answers
            return
        exit_code = run_module(**json.loads(request))
        self.wfile.write(f"{exit_code}\n".encode())


def run_module(module: str, arguments: list[str], folder: str, environment: dict[str, str], outputs: str) -> int:
    """Run `python -m MODULE ARGUMENTS…` in this process and return its exit code.

    Output goes to the files `stdout` and `stderr` in the folder `outputs`.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(outputs, name), os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = [module, *arguments]
    # As `python -m` does. The server has only the paths that it started with.
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        exit_code = 0
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            print(end.code, file=sys.stderr)
        exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    # What Python does when it exits, and a fork does not: a command that hangs or fails here fails for users too.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    return exit_code


def start_server(environment: dict[str, str], owner: int) -> Path:
    """Start a server that runs until the process `owner` ends. Return its socket once it answers."""
    folder = Path(tempfile.mkdtemp(prefix="seqclf-"))  # short, because the path of a socket has at most 104 bytes
    path, log_path = folder / "socket", folder / "log"
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.command_server", str(path), str(owner)],
            env={**environment, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    SERVERS.append(process)
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        with suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as attempt:
            attempt.connect(str(path))
            return path
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the command server did not start:\n{log_path.read_text()}")
        time.sleep(0.05)


def request_command(
    path: Path, module: str, arguments: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> Callable[[], tuple[int, str, str]]:
    """Start a command in a fork of the server. Return a function that waits for exit code, stdout and stderr."""
    outputs = TemporaryDirectory()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(COMMAND_TIMEOUT)
    connection.connect(str(path))
    request: dict[str, Any] = {
        "module": module,
        "arguments": arguments,
        "folder": str(folder),
        "environment": environment,
        "outputs": outputs.name,
    }
    connection.sendall(json.dumps(request).encode() + b"\n")

    def wait() -> tuple[int, str, str]:
        with connection, outputs:
            reply = connection.makefile().readline()
            texts = [""] * 2
            for position, name in enumerate(("stdout", "stderr")):
                with suppress(FileNotFoundError):
                    texts[position] = Path(outputs.name, name).read_text(encoding="utf-8")
        # A command that died, by a signal for example, gives no reply.
        return int(reply) if reply else -1, *texts

    return wait


def main() -> None:
    path, owner = sys.argv[1:]
    import support.warm_imports  # noqa: F401

    # The forks share what is imported: collecting it would read, and so copy, all of its memory in each of them.
    gc.collect()
    gc.freeze()
    CommandServer(path, int(owner)).serve_forever()


if __name__ == "__main__":
    main()
