"""Card events in files, and the real commands over them, each in its own process.

With several workers (`pytest -n`) all of them share one folder, so that the training runs that many tests look at are
made once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from support.card_rows import SMALL, cards

BAD_ROW = 5


@dataclass
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line on stdout, parsed."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])


class Shell:
    """Runs commands in one folder, as a user without keys or accounts would."""

    def __init__(self, here: Path):
        self.here = here
        (here / "home").mkdir(exist_ok=True)
        hidden = ("WANDB_", "HYDRA_", "SEQCLF_", "PYTEST_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        self.environment |= {
            "HOME": str(here / "home"),
            "SEQCLF_CACHE": str(here / "cache"),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, *command: str, cwd: Path | None = None, **environment: str) -> Callable[[], Done]:
        """Start a Python command. The returned function waits for its end."""
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd or self.here,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def wait() -> Done:
            out, err = process.communicate(timeout=180)
            return Done(process.returncode, out, err)

        return wait

    def __call__(self, name: str, *arguments: str, **options: Any) -> Done:
        """`shell("train", "data=toy", …)`: `python -m seqclf.train data=toy …`."""
        return self.start("-m", f"seqclf.{name}", *arguments, **options)()


@pytest.fixture(scope="session")
def shell(tmp_path_factory) -> Shell:
    """A shell in a folder with `train.jsonl`, whose sixth row is bad, and `test.parquet`."""
    base = tmp_path_factory.getbasetemp()
    here = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "end_to_end"
    with FileLock(f"{here}.lock"):
        if not here.exists():
            here.mkdir()
            rows = list(cards(240, 1))
            rows[BAD_ROW]["shop"] = None
            (here / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            pq.write_table(pa.Table.from_pylist(list(cards(90, 2))), here / "test.parquet")
    return Shell(here)


DATA = ["data=files", "data.train=train.jsonl", "data.test=test.parquet", "data.label=fraud", "data.id=card"]


@pytest.fixture(scope="session")
def files() -> list[str]:
    """Arguments of a short training run on these files."""
    return [*DATA, *SMALL]


@dataclass
class Trained:
    """A run folder and its command."""

    run: Path
    done: Done


@pytest.fixture(scope="session")
def runs(shell, files) -> dict[str, Trained]:
    """The same training run twice: `logged` to Weights & Biases, which has no key here, and `again` to no logger."""
    commands = {
        "logged": [*files, "trainer.log_every_n_steps=5", "hydra.run.dir=logged"],
        "again": [*files, "logger=none", "hydra.run.dir=again"],
    }
    finished = shell.here / "runs.json"
    with FileLock(f"{finished}.lock"):
        if not finished.exists():
            started = {name: shell.start("-m", "seqclf.train", *arguments) for name, arguments in commands.items()}
            finished.write_text(json.dumps({name: asdict(wait()) for name, wait in started.items()}))
    done = json.loads(finished.read_text())
    return {name: Trained(shell.here / name, Done(**done[name])) for name in commands}


@pytest.fixture(scope="session")
def trained(runs) -> Trained:
    assert runs["logged"].done.code == 0, runs["logged"].done.err
    return runs["logged"]
