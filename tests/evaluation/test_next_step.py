"""The next step follows from the result of a run: one sentence for each problem, and a command without one."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.evaluation.comparison import Comparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import Metrics
from seqclf.evaluation.next_step import next_step
from seqclf.evaluation.result import Facts, ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split

DATA = {"validation": None, "test": None, "split": {"by": "random"}}
SETTINGS = {"data": DATA, "trainer": {"max_epochs": 30}, "monitor": "recall"}
PROMISE = Guarantee(
    rule="min_recall", label="yes", target=0.8, confidence=0.95, statement="sure", backed=True, rows=40, needed=None
)


def split_of(recall, used_for=None):
    """Metrics of 400 rows, half of them positive. The model finds a part of the rows of either class."""
    labels = np.repeat([0, 1], 200)
    is_found = np.tile(np.arange(200) < recall * 200, 2)
    outputs = ScoredRows(
        np.eye(2)[np.where(is_found, labels, 1 - labels)] * 3.0, labels, np.full(400, 5), np.zeros(400, bool)
    )
    return judge_split(outputs, ["no", "yes"], "yes", Decision(), with_intervals=True, used_for=used_for)


def baseline(difference):
    entry = Comparison(
        metric="average_precision",
        model=0.5 + difference,
        baseline=0.5,
        difference=difference,
        low=difference - 0.05,
        high=difference + 0.05,
    )
    fields = {field.name: getattr(GOOD, field.name) for field in dataclasses.fields(Metrics)}
    return ModelResult(**fields, name="order-blind", kind="logistic regression", comparisons=[entry])


GOOD = split_of(0.9)
RESULT = RunResult(splits=dict.fromkeys(("train", "validation", "test"), GOOD), decision=Decision())
BUNDLE = "runs/a/bundle"
FOLDS = "data.split.by=fold data.split.fold=all"


def step(training=None, **known):
    facts = {"settings": SETTINGS, "epochs": 30, "best_epoch": 12, "steps": 500, "bundle": BUNDLE}
    return next_step(replace(RESULT, **known), Facts(**{**facts, **(training or {})}))


def test_a_good_model_is_to_be_used():
    assert step() == f"use it with seqclf predict bundle={BUNDLE} input=new.parquet output=scores.parquet"
    assert step(baseline=baseline(0.2)) == step()
    assert "bundle=BUNDLE" in step({"bundle": "runs/it's a run/bundle"}), "a path that needs quotes"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "get about 60 rows of yes instead of 40 to set the threshold of decision.min_recall=0.8 ("),
        ({"confidence": None}, f"train again with {FOLDS}, so that 600 rows of yes set"),
        ({"confidence": None, "unit": "group"}, f"train again with {FOLDS}, so that more groups with yes set"),
        ({"confidence": None, "rule": "max_alerts"}, f"train again with {FOLDS}, so that 1,200 rows set"),
        (
            {"confidence": None, "needed": 10_000},
            "get about 10,000 rows of yes instead of 40 to set the threshold of decision.min_recall=0.8 (more data).",
        ),
        ({"rule": "min_precision", "needed": 20}, "get more alerts than 40 to set the threshold of decision.min_"),
        (
            {"basis": "folds", "needed": None},
            "train again with data.split.by=random data.split.fold=0, because folds back nothing that is sure.",
        ),
        ({"needed": 20}, "set an easier target than decision.min_recall=0.8: "),
        ({"conflict": True, "takes": 0.041}, "raise decision.max_alerts to 0.041, or set a recall below"),
        ({"basis": "by_hand"}, "correct the labels of the rows that were left out"),
        ({"basis": "chosen"}, "train again with decision.provisional=false decision.holdout=auto: "),
        ({"backed": True}, "use it with "),
        ({"rule": "cost"}, "use it with "),
    ],
)
def test_a_guarantee_that_is_not_backed_asks_for_what_would_back_it(change, expected):
    guarantee = replace(PROMISE, **{"backed": False, "needed": 60, **change})
    assert step(decision=Decision(rule=guarantee.rule, targets=(guarantee,))).startswith(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"generator": {"_target_": "own.write"}}, "get about 60 rows of yes instead of 40 to set the threshold of "),
        ({"test": "test.parquet"}, "get about 60 rows of yes instead of 40 to set the threshold of "),
        ({"validation": "validation.parquet"}, f"train again with {FOLDS}, so that 400 rows of yes set"),
    ],
)
def test_folds_are_advised_where_the_data_allows_them(change, expected):
    guarantee = replace(PROMISE, backed=False, needed=60, confidence=None)
    settings = {**SETTINGS, "data": {**DATA, **change}}
    advice = step({"settings": settings}, decision=Decision(rule=guarantee.rule, targets=(guarantee,)))
    assert advice.startswith(expected) and ("data.split.validation" in advice) == ("test" in change)


def leaks(**changes):
    return LeakReport(
        rows=900,
        distinct=900,
        seen_before={},
        ids_seen_before=None,
        conflicting_sequences=0,
        conflicting_rows=0,
        **changes,
    )


def test_rows_that_do_not_tell_a_model_from_a_coin_ask_for_more():
    splits = {"test": replace(split_of(0.52), alarms=[])}
    assert step(splits=splits).startswith("judge it on more rows than the 400 of test")


def test_groups_that_a_random_cut_has_divided_are_kept_together():
    shared = leaks(groups_seen_before={"test": 7})
    expected = "train again with data.split.by=group: 7 rows of test are of a group that train has too."
    assert step(leaks=shared) == expected
    assert "by=group" not in step(leaks=leaks(groups_seen_before={"test": 0}))
    by_time = {**SETTINGS, "data": {**DATA, "split": {"by": "time"}}}
    own_file = {**SETTINGS, "data": {**DATA, "test": "test.parquet"}}
    for settings in (by_time, own_file):
        assert step({"settings": settings}, leaks=shared).startswith("settle this first: test shares groups")


def test_a_simpler_model_that_wins_is_named():
    assert step(baseline=baseline(-0.2)).startswith("use the simpler model if it is enough")
    assert "simpler" not in step(baseline=baseline(-0.01))


@pytest.mark.parametrize(
    ("train", "training", "is_short"),
    [
        (0.6, {"best_epoch": 29}, True),
        (0.6, {"best_epoch": 12}, False),
        (0.95, {"best_epoch": 29}, False),  # the training rows are learned
        (0.6, {"best_epoch": 29, "steps": 90_000}, False),  # the learning rate has fallen
        (0.6, {"best_epoch": 27, "epochs": 28}, False),  # patience ended the training
        (0.6, {"best_epoch": 29, "settings": {**SETTINGS, "monitor": None}}, False),
        (0.6, {"best_epoch": 1, "epochs": 3, "settings": {**SETTINGS, "trainer": {"max_epochs": 3}}}, True),
    ],
)
def test_a_training_whose_end_was_too_early_goes_on(train, training, is_short):
    splits = {"train": split_of(train), "validation": split_of(0.6), "test": GOOD}
    expected = "train again with trainer.max_epochs=" + ("30" if training.get("epochs") == 3 else "60")
    assert step(training, splits=splits).startswith(expected) == is_short


def test_any_other_doubt_is_settled_before_the_model_is_used():
    chance = split_of(0.5)
    assert chance.alarms and step(splits={"train": GOOD, "test": chance}) == f"try {chance.alarms[0].remedy}."
    chose = {"train": GOOD, "validation": split_of(0.9, used_for=["epoch"])}
    assert step(splits=chose).startswith("train again with data.split.test=0.2, so that")
    by_folds = {**SETTINGS, "data": {**DATA, "split": {"by": "fold", "fold": "all"}}}
    assert step({"settings": by_folds}, splits=chose) == (
        "judge it on new rows with seqclf evaluate: all rows chose its epoch."
    )
