"""The first line of a verdict: it says yes only where no alarm, no guarantee and no row contradicts it."""

from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.alarms import Alarm
from seqclf.evaluation.decisions.decision import Decision, Guarantee
from seqclf.evaluation.decisions.target_results import TargetResult
from seqclf.evaluation.results import SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import REASONS, RunResult, reasons_against
from seqclf.report.verdict import verdict_of

LABELS = np.arange(400) % 2
GOOD = evaluate_split(
    SplitOutputs(3.0 * np.eye(2)[np.r_[1 - LABELS[:10], LABELS[10:]]], LABELS, LABELS + 3, LABELS < 0),
    ["no", "yes"],
    "yes",
    Decision(positive="yes"),
    with_intervals=True,
)
TARGET = Guarantee(
    rule="min_recall", label="yes", target=0.8, confidence=0.95, statement="sure", backed=True, rows=50, needed=None
)


def result(status):
    return TargetResult(
        rule="min_recall", label="yes", target=0.8, units=200, value=0.7, low=0.6, high=0.8, status=status
    )


def verdict(metrics, **known):
    return verdict_of(RunResult(splits={"test": metrics}, decision=Decision(), **known))


def test_a_good_model_is_to_be_used():
    assert GOOD.alarms == [] and reasons_against(GOOD, Decision(), "test") == []
    assert verdict(GOOD).use == "Use it: yes."
    assert "not compared" in verdict(GOOD, no_baseline="baseline=false").use


@pytest.mark.parametrize("kind", [*REASONS, "of_a_plugin"])
def test_every_alarm_speaks_against_it(kind):
    metrics = replace(GOOD, alarms=[Alarm(kind, "something is wrong", "mend it")])
    found = verdict(metrics)
    assert found.use.startswith("Use it: not yet, because ") and found.headline[0] == found.use


@pytest.mark.parametrize(
    ("target", "status", "speaks"),
    [
        (TARGET, "met", False),
        (TARGET, "within_chance", False),
        (TARGET, "broken", True),
        (replace(TARGET, backed=False), "met", True),
        (replace(TARGET, rule="cost", backed=True), None, False),
    ],
)
def test_a_guarantee_that_is_broken_or_not_backed_speaks_against_it(target, status, speaks):
    decision = Decision(targets=(target,))
    metrics = replace(GOOD, targets=None if status is None else [result(status)])
    assert bool(reasons_against(metrics, decision, "test")) == speaks


def test_rows_that_chose_the_model_or_share_groups_speak_against_it():
    assert reasons_against(replace(GOOD, used_for=["epoch"]), Decision(), "validation")
    assert reasons_against(GOOD, Decision(), "test", is_apart=False)
    two = [Alarm("a", "a", "mend it"), Alarm("b", "b", "mend it")]
    assert verdict(replace(GOOD, alarms=two)).use == "Use it: not yet, because a; b."
