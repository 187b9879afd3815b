"""The decision of a run is used for its own checkpoint alone."""

import json
import math

import pytest

from seqclf.errors import InputError
from seqclf.evaluation.decisions.decision import Decision
from seqclf.walkthrough.run_files import ChosenRule, chosen_rule

DECISION = Decision().with_margin("min_recall", ["no", "yes"], -1.0, "yes")
OTHER = ChosenRule(Decision(), math.inf)


def rule_of(folder, metrics, **changes):
    (folder / "metrics.json").write_text(metrics if isinstance(metrics, str) else json.dumps(metrics))
    return chosen_rule(folder / "checkpoints" / "best.ckpt", **{"trained_steps": 10, "is_refitted": False, **changes})


def test_the_rule_is_that_of_the_checkpoint(tmp_path):
    metrics = {"step": 10, "decision": DECISION.to_dict(), "halting": {"threshold": 0.5, "splits": {}}}
    assert rule_of(tmp_path, metrics) == ChosenRule(DECISION, 0.5)
    assert rule_of(tmp_path, metrics, trained_steps=7) == OTHER
    assert rule_of(tmp_path, metrics, is_refitted=True) == OTHER
    assert rule_of(tmp_path, {**metrics, "refit": {}}, is_refitted=True).decision == DECISION
    assert rule_of(tmp_path, "{") == rule_of(tmp_path, "[]") == OTHER
    assert chosen_rule(tmp_path / "elsewhere" / "deep" / "best.ckpt", 10, is_refitted=False) == OTHER


def test_a_decision_that_is_none_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"^metrics\.json of the run: its decision cannot be read"):
        rule_of(tmp_path, {"step": 10, "decision": 3})
