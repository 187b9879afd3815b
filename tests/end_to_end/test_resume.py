"""Resuming an interrupted run gives the results of an uninterrupted one."""

import csv
import json
import shutil

import pytest
import torch

from seqclf.training.task import load_task

# The real command, with a callback that stops after two epochs. Setting max_epochs=2 would
# not do: the learning rate schedule depends on it.
INTERRUPTED = """
import sys
import lightning.pytorch as pl
from seqclf.runs import training_run

class StopAfterTwo(pl.Callback):
    def on_train_epoch_end(self, trainer, task):
        trainer.should_stop = trainer.current_epoch == 1

training_run.build_callbacks = lambda settings: [StopAfterTwo()]
from seqclf.config.command import run
run("train")
"""


@pytest.fixture(scope="module")
def resumed(shell, trained, files):
    """An interrupted run, resumed in its folder `interrupted` and in the new folder `moved`."""
    (shell.folder / "interrupted_train.py").write_text(INTERRUPTED)
    arguments = [*files, "logger=none", "export=false", "hydra.run.dir=interrupted"]
    interrupted = shell.fork("interrupted_train", *arguments, package="")()
    assert interrupted.result["epochs"] == 2
    assert torch.load(shell.folder / "interrupted/checkpoints/last.ckpt", weights_only=True)["epoch"] == 1
    shutil.copytree(shell.folder / "interrupted", shell.folder / "copied")
    waits = [
        shell.fork(
            *("train", *files, "logger=none", "export=false"),
            *(f"checkpoint={origin}/checkpoints/last.ckpt", f"hydra.run.dir={run}"),
        )
        for origin, run in (("interrupted", "interrupted"), ("copied", "moved"))
    ]
    for wait in waits:
        assert wait().exit_code == 0
    return shell.folder


@pytest.mark.parametrize("run", ["interrupted", "moved"])
def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_run(resumed, trained, run):
    uninterrupted, resumed_task = (
        load_task(folder / "checkpoints/last.ckpt") for folder in (trained.run, resumed / run)
    )
    for name, weight in uninterrupted.state_dict().items():
        assert torch.equal(weight, resumed_task.state_dict()[name]), name


@pytest.mark.parametrize("run", ["interrupted", "moved"])
def test_resumed_run_has_the_metrics_of_an_uninterrupted_run(resumed, trained, run):
    uninterrupted, resumed_metrics = (
        json.loads((folder / "metrics.json").read_text()) for folder in (trained.run, resumed / run)
    )
    assert uninterrupted == resumed_metrics


@pytest.mark.parametrize("run", ["interrupted", "moved"])
def test_resumed_run_keeps_the_metrics_of_earlier_epochs(resumed, trained, run):
    def rows(run):
        """Rows of metrics.csv without the columns that depend on the machine."""
        with (run / "metrics.csv").open(newline="") as file:
            return [
                {**row, **dict.fromkeys(("seconds", "tokens_per_s", "step_ms", "memory_mb"))}
                for row in csv.DictReader(file)
            ]

    assert rows(trained.run) == rows(resumed / run)


def test_resuming_with_other_settings_is_refused_by_name(resumed, shell, files):
    changed = {"monitor": "monitor=loss", "data": "data.positive=no", "model": "model.layers=2"}
    common = ["train", *files, "logger=none", "checkpoint=copied/checkpoints/last.ckpt"]
    waits = {key: shell.fork(*common, override, f"hydra.run.dir=other-{key}") for key, override in changed.items()}
    for key, wait in waits.items():
        completed = wait()
        message = completed.stderr.splitlines()[-1]
        assert completed.exit_code == 2, completed.stderr
        assert message.startswith("error: checkpoint=copied/checkpoints/last.ckpt: "), completed.stderr
        assert f"was trained with another {key} ({key}" in message and f"; set the same {key}" in message
