"""The first line of a verdict: it says yes only where no alarm, no guarantee and no row contradicts it."""

from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.alarms import Alarm
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.result import REASONS, RunResult, reasons_against
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.evaluation.targets import Target
from seqclf.report.verdict import verdict_of

LABELS = np.arange(400) % 2
GOOD = judge_split(
    ScoredRows(3.0 * np.eye(2)[np.r_[1 - LABELS[:10], LABELS[10:]]], LABELS, LABELS + 3, LABELS < 0),
    ["no", "yes"],
    "yes",
    Decision(positive="yes"),
    with_intervals=True,
)
TARGET = Guarantee(
    rule="min_recall", label="yes", target=0.8, confidence=0.95, statement="sure", backed=True, rows=50, needed=None
)


def result(status):
    everything = np.ones(200, bool)
    observed = {"units": 200, "value": 0.7, "low": 0.6, "high": 0.8, "status": status}
    return Target.of(TARGET, Decision(), everything, everything, 1, asked=True, **observed)


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


def share_of_yes(classes, rarest, rows, strength, draws):
    """Fraction of models that are to be used. Logits of the true class are raised by `strength`; coins know nothing."""
    generator, shares = np.random.default_rng(0), np.r_[rarest, np.full(classes - 1, (1 - rarest) / (classes - 1))]
    names, positive = list("abcde"[:classes]), "a" if classes == 2 else None
    yes = 0
    for _ in range(draws):
        labels = generator.choice(classes, rows, p=shares)
        logits = np.log(shares) + generator.normal(size=(rows, classes)) + strength * np.eye(classes)[labels]
        outputs = ScoredRows(logits, labels, labels + 3, labels < 0)
        metrics = judge_split(outputs, names, positive, Decision(positive=positive), with_intervals=True)
        yes += reasons_against(metrics, Decision(positive=positive), "test") == []
    return yes / draws


@pytest.mark.parametrize("rows", [30, 60, 100, 300])
@pytest.mark.parametrize("rarest", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_coins_are_not_to_be_used(classes, rarest, rows):
    assert share_of_yes(classes, rarest, rows, 0.0, 40) <= 0.1  # of 40 coins that get yes in 5 %, 5 or more do in 5 %


@pytest.mark.parametrize(
    ("classes", "rarest", "rows", "least"),
    [(2, 0.5, 30, 0.9), (2, 0.2, 60, 0.9), (2, 0.05, 300, 0.7), (3, 0.2, 30, 0.9), (5, 0.05, 30, 0.9)],
)
def test_a_model_that_ranks_well_is_to_be_used(classes, rarest, rows, least):
    assert share_of_yes(classes, rarest, rows, 2.0, 40) >= least


@pytest.mark.parametrize("positive", ["yes", None])
def test_rows_of_one_class_prove_nothing(positive):
    ones = np.ones(50, np.int64)
    rows = ScoredRows(3.0 * np.eye(2)[ones], ones, ones, ones < 0)
    metrics = judge_split(rows, ["no", "yes"], positive, Decision(positive=positive), with_intervals=True)
    assert reasons_against(metrics, Decision(), "test") == [REASONS["no_better_than_chance"]]


def test_rows_that_chose_the_model_or_share_groups_speak_against_it():
    assert reasons_against(replace(GOOD, used_for=["epoch"]), Decision(), "validation")
    assert reasons_against(GOOD, Decision(), "test", is_apart=False)
    two = [Alarm("a", "a", "mend it"), Alarm("b", "b", "mend it")]
    assert verdict(replace(GOOD, alarms=two)).use == "Use it: not yet, because a; b."
