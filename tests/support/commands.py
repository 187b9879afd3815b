"""Runs seqclf's commands in forks of a server process that has imported PyTorch and Lightning once.

Starting Python and importing takes most of the seconds of a small command. A fork has its own memory, working folder,
environment and exit code, as a process started by the user has.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock


class CommandServer:
    """Starts commands in forks. `environment` is that of the server, read while it imports, and of each command."""

    def __init__(self, environment: dict[str, str]):
        self.environment = environment
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["support.warm_imports"])
        paths = os.pathsep.join(path for path in sys.path if path)  # the server's, before it takes over this process's
        with mock.patch.dict(os.environ, {**environment, "PYTHONPATH": paths}, clear=True):
            forkserver.ensure_running()

    def start(self, module: str, *arguments: str, cwd: Path) -> Callable[[], tuple[int, str, str]]:
        """Start `python -m MODULE ARGUMENTS…`. Return a function that waits for exit code, stdout and stderr."""
        outputs = TemporaryDirectory()
        process: Any = self.context.Process(
            target=run_module, args=(module, arguments, cwd, self.environment, outputs.name)
        )
        process.start()

        def wait() -> tuple[int, str, str]:
            process.join(timeout=180)
            if process.is_alive():
                process.kill()
                raise TimeoutError(f"{module} {arguments} did not end within 180 seconds")
            with outputs:
                texts = [Path(outputs.name, name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
            return process.exitcode, texts[0], texts[1]

        return wait


def run_module(module: str, arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], outputs: str) -> None:
    """Run a module as `__main__`. Write its output to the files `stdout` and `stderr` of the folder `outputs`."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(outputs, name), os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = [module, *arguments]
    sys.path.insert(0, str(cwd))  # as `python -m` does
    runpy.run_module(module, run_name="__main__", alter_sys=True)
