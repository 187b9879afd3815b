"""The result of a run is used for its own checkpoint alone."""

import json

import pytest

from seqclf.errors import InputError
from seqclf.evaluation.decisions.decision import Decision
from seqclf.walkthrough.run_files import result_of

DECISION = Decision().with_margin("min_recall", ["no", "yes"], -1.0, "yes")
HALTING = {"threshold": 0.5, "splits": {}}


def result(folder, metrics, trained_steps=10):
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return result_of(folder / "checkpoints" / "best.ckpt", trained_steps)


def test_the_result_is_that_of_the_checkpoint(tmp_path):
    metrics = {"step": 10, "decision": DECISION.to_dict(), "halting": HALTING}
    own = result(tmp_path, metrics)
    assert own.decision == DECISION and own.halting.threshold_of(None) == 0.5
    assert result(tmp_path, metrics, trained_steps=7) is None
    assert result_of(tmp_path / "elsewhere" / "deep" / "best.ckpt", 10) is None


@pytest.mark.parametrize("metrics", [{"step": 10, "decision": 3}, []])
def test_a_damaged_result_is_an_error(tmp_path, metrics):
    with pytest.raises(InputError, match=r"^metrics\.json of the run: is not as this version writes it"):
        result(tmp_path, metrics)
