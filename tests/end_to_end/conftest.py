"""Files of card purchases, and training runs on them that many tests read.

The workers of pytest-xdist (`pytest -n`) share one folder, so that these runs are trained once.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from support.card_rows import SMALL, cards
from support.shell import CompletedCommand, Shell

INVALID_ROW = 5


@pytest.fixture(scope="session")
def shell(empty_shell) -> Shell:
    """A shell in a folder with `train.jsonl`, whose sixth row is invalid, and `test.parquet`."""
    folder = empty_shell.folder
    with FileLock(folder / "files.lock"):
        if not (folder / "test.parquet").exists():
            rows = list(cards(240, 1))
            rows[INVALID_ROW]["shop"] = None
            (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            pq.write_table(pa.Table.from_pylist(list(cards(90, 2))), folder / "test.parquet")
    return empty_shell


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
