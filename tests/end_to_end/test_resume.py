"""A run that was broken off and taken up again is the run that was not."""

import csv
import json
import shutil

import pytest
import torch

from seqclf.training.module import load_task

# The real command, but for a callback in the place of early stopping, which breaks training off after two epochs.
INTERRUPTED = """
import sys
import lightning.pytorch as pl
from seqclf.training import callbacks

class StopAfterTwo(pl.Callback):
    def on_train_epoch_end(self, trainer, task):
        trainer.should_stop = trainer.current_epoch == 1

callbacks.early_stopping = lambda patience: StopAfterTwo()
from seqclf.train import main
main()
"""


@pytest.fixture(scope="module")
def resumed(shell, trained, files):
    """The run taken up in its own folder, `broken`, and in another, `onward`."""
    broken = shell.start("-c", INTERRUPTED, *files, "logger=none", "export=false", "hydra.run.dir=broken")()
    assert broken.result["epochs"] == 2
    assert torch.load(shell.here / "broken/checkpoints/last.ckpt", weights_only=True)["epoch"] == 1
    shutil.copytree(shell.here / "broken", shell.here / "left")
    _forget(shell.here / "left/checkpoints/last.ckpt", ["members", "variational"])
    started = [
        shell.start(
            *("-m", "seqclf.train", *files, "logger=none", "export=false"),
            *(f"checkpoint={origin}/checkpoints/last.ckpt", f"hydra.run.dir={run}"),
        )
        for origin, run in (("broken", "broken"), ("left", "onward"))
    ]
    for wait in started:
        assert wait().code == 0
    return shell.here


def _forget(path, keys):
    """Make a checkpoint one from before some of the model's settings, which it has all the same."""
    state = torch.load(path, weights_only=True)
    for key in keys:
        del state["hyper_parameters"]["model"][key]
    torch.save(state, path)


@pytest.mark.parametrize("run", ["broken", "onward"])
def test_a_resumed_run_ends_in_the_weights_of_an_unbroken_one(resumed, trained, run):
    whole, parts = (load_task(folder / "checkpoints/last.ckpt") for folder in (trained.run, resumed / run))
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, parts.state_dict()[name]), name


@pytest.mark.parametrize("run", ["broken", "onward"])
def test_a_resumed_run_chooses_the_epoch_of_an_unbroken_one(resumed, trained, run):
    whole, parts = (json.loads((folder / "metrics.json").read_text()) for folder in (trained.run, resumed / run))
    assert whole == parts


@pytest.mark.parametrize("run", ["broken", "onward"])
def test_a_resumed_run_keeps_the_record_of_the_epochs_before(resumed, trained, run):
    def rows(run):
        with (run / "metrics.csv").open(newline="") as file:
            return [
                {**row, **dict.fromkeys(("seconds", "tokens_per_s", "step_ms", "memory_mb"))}
                for row in csv.DictReader(file)
            ]

    assert rows(trained.run) == rows(resumed / run)


def test_what_would_not_continue_the_run_is_refused_by_name(resumed, shell, files):
    changed = {"monitor": "monitor=loss", "data": "data.positive=no", "model": "model.layers=2"}
    told = {"model": "model (model.layers=1)"}
    common = ["-m", "seqclf.train", *files, "logger=none", "checkpoint=left/checkpoints/last.ckpt"]
    started = {key: shell.start(*common, override, f"hydra.run.dir=other-{key}") for key, override in changed.items()}
    for key, wait in started.items():
        done = wait()
        last = done.err.splitlines()[-1]
        assert done.code == 2 and last.startswith("error: checkpoint=left/checkpoints/last.ckpt: "), done.err
        assert last.endswith(f"was trained with another {told.get(key, key)}; set the same {key} as its run")
