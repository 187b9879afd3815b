"""A shell that runs commands in separate processes, as a user would."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock
from support.command_server import request_command, start_server


@dataclass
class CompletedCommand:
    """Exit code and output of a finished command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line of stdout, parsed as JSON. The command has to have succeeded."""
        assert self.exit_code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


class Shell:
    """Runs Python commands in one folder, with an empty home and without keys or accounts."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "home").mkdir(exist_ok=True)
        # A key, a cache or the settings of this pytest process would change what the commands do.
        hidden = ("WANDB_", "HYDRA_", "SEQCLF_", "PYTEST_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        self.environment |= {
            "HOME": str(folder / "home"),
            "SEQCLF_CACHE": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }

    @cached_property
    def server(self) -> Path:
        """Socket of the server of commands, which all workers share and the first of them starts."""
        record = self.folder / "server"
        with FileLock(f"{record}.lock"):
            if not record.exists():
                # The parent of a worker lives until all of them have ended.
                owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
                record.write_text(str(start_server(self.environment, owner)))
        return Path(record.read_text())

    def start(self, *command: str, cwd: Path | None = None, **environment: str) -> Callable[[], CompletedCommand]:
        """Start `python COMMAND…` in a new process. Return a function that waits for it."""
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd or self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def wait() -> CompletedCommand:
            stdout, stderr = process.communicate(timeout=180)
            return CompletedCommand(process.returncode, stdout, stderr)

        return wait

    def fork(
        self, name: str, *arguments: str, cwd: Path | None = None, package: str = "seqclf.", **environment: str
    ) -> Callable[[], CompletedCommand]:
        """Start `seqclf.NAME ARGUMENTS…` in a fork of the server. Return a function that waits for it."""
        variables = {**self.environment, **environment}
        wait = request_command(self.server, f"{package}{name}", arguments, cwd or self.folder, variables)
        return lambda: CompletedCommand(*wait())

    def __call__(self, name: str, *arguments: str, cwd: Path | None = None, **environment: str) -> CompletedCommand:
        """Run `seqclf.NAME ARGUMENTS…` in a fork of the server and wait for it."""
        return self.fork(name, *arguments, cwd=cwd, **environment)()
