"""Files of card purchases, and a shell that runs the commands on them in separate processes.

The workers of pytest-xdist (`pytest -n`) share one folder, so that the training runs that many tests read are trained
once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from support.card_rows import SMALL, cards
from support.command_server import request_command, start_server

INVALID_ROW = 5


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


@pytest.fixture(scope="session")
def shell(tmp_path_factory) -> Shell:
    """A shell in a folder with `train.jsonl`, whose sixth row is invalid, and `test.parquet`."""
    base = tmp_path_factory.getbasetemp()
    # The base folders of all workers have one parent, which makes this folder common to them.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "end_to_end"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            rows = list(cards(240, 1))
            rows[INVALID_ROW]["shop"] = None
            (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            pq.write_table(pa.Table.from_pylist(list(cards(90, 2))), folder / "test.parquet")
    return Shell(folder)


WANDB = {"WANDB_PROJECT": "frauds", "WANDB_TAGS": "cards, small", "WANDB_NOTES": "of the environment"}
DATA = ["data=files", "data.train=train.jsonl", "data.test=test.parquet", "data.label=fraud", "data.id=card"]


@pytest.fixture(scope="session")
def files() -> list[str]:
    """Arguments of a short training run on the files of `shell`."""
    return [*DATA, *SMALL]


@dataclass
class Trained:
    """A run folder and the command that trained it."""

    run: Path
    command: CompletedCommand


@pytest.fixture(scope="session")
def runs(shell, files) -> dict[str, Trained]:
    """The same training run twice: `logged` to Weights & Biases, without a key, and `again` without a logger."""
    completed_file = shell.folder / "runs.json"
    with FileLock(f"{completed_file}.lock"):
        if not completed_file.exists():
            logged = [*files, "trainer.log_every_n_steps=5", "hydra.run.dir=logged"]
            waits = {
                "logged": shell.start("-m", "seqclf.train", *logged, **WANDB),
                "again": shell.fork("train", *files, "logger=none", "hydra.run.dir=again"),
            }
            completed_file.write_text(json.dumps({name: asdict(wait()) for name, wait in waits.items()}))
    completed = json.loads(completed_file.read_text())
    return {name: Trained(shell.folder / name, CompletedCommand(**completed[name])) for name in completed}


@pytest.fixture(scope="session")
def trained(runs) -> Trained:
    """The run `logged`, which has succeeded."""
    assert runs["logged"].command.exit_code == 0, runs["logged"].command.stderr
    return runs["logged"]
