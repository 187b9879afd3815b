"""Files next to a checkpoint: read where they are of it, left out where they are not."""

import json

import numpy as np
import pytest

from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.walkthrough.run_files import RunFiles

CSV = "epoch,step,train/loss,validation/loss,validation/recall\n0,5,1.5,0.5,0.75\n1,10,1.0,,\n"


@pytest.fixture
def run(tmp_path):
    decision = Decision().with_margin("min_recall", ["no", "yes"], -1.0, "yes")
    (tmp_path / "metrics.json").write_text(json.dumps({"step": 10, "decision": decision.to_dict()}))
    (tmp_path / "metrics.csv").write_text(CSV)
    (tmp_path / "bundle").mkdir()
    return tmp_path


def test_decision_epochs_and_bundle_are_those_of_the_checkpoint(run):
    files = RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10)
    assert files.decision.rule == "min_recall" and files.bundle == run / "bundle"
    assert files.best_epoch == 1 and files.threshold == float("inf")
    assert files.history[0] == {
        "epoch": 0,
        "step": 5,
        "train/loss": 1.5,
        "validation/loss": 0.5,
        "validation/recall": 0.75,
    }
    assert "validation/loss" not in files.history[1]


def test_files_of_another_checkpoint_say_nothing(run):
    files = RunFiles.of(run / "checkpoints" / "last.ckpt", trained_steps=7)
    assert files == RunFiles(Decision(), [], None, None)
    assert files.bundle_error(None, np.zeros((1, 2))) is None


def test_the_limit_of_an_adaptive_network_is_that_of_the_scores(run):
    (run / "metrics.json").write_text(json.dumps({"step": 10, "halting": {"threshold": 0.5, "splits": {}}}))
    assert RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=7).threshold == float("inf")
    (run / "metrics.json").write_text(
        json.dumps({"step": 10, "decision": Decision().to_dict(), "halting": {"threshold": 0.5, "splits": {}}})
    )
    assert RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10).threshold == 0.5


@pytest.mark.parametrize("halting", [[1], {"threshold": "low"}, {"threshold": -1.0}, None])
def test_a_damaged_limit_is_left_out(run, halting):
    (run / "metrics.json").write_text(json.dumps({"step": 10, "decision": Decision().to_dict(), "halting": halting}))
    assert RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10).threshold == float("inf")


def test_a_row_of_epochs_with_too_many_cells_is_left_out(run):
    (run / "metrics.csv").write_text(CSV.replace("0.75", "0.75,7,8"))
    assert RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10).history == []


def test_missing_and_damaged_files_are_left_out(run):
    (run / "metrics.json").write_text("{")
    (run / "metrics.csv").write_text("epoch,step\nx,y\n")
    assert RunFiles.of(run / "checkpoints" / "best.ckpt", 10) == RunFiles(Decision(), [], None, None)
    assert RunFiles.of(run / "elsewhere" / "deep" / "best.ckpt", 10) == RunFiles(Decision(), [], None, None)


def test_a_bundle_that_cannot_be_read_is_not_compared(run):
    files = RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10)
    assert files.bundle_error(None, np.zeros((1, 2))) is None


def test_a_decision_that_is_none_is_an_error(run):
    (run / "metrics.json").write_text(json.dumps({"step": 10, "decision": 3}))
    with pytest.raises(InputError, match=r"^metrics\.json of the run: its decision cannot be read"):
        RunFiles.of(run / "checkpoints" / "best.ckpt", trained_steps=10)
