"""The next step follows from the facts of a run, and its overrides are new to the run and can be typed."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.comparison import MetricComparison, mean_difference_limits
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.diagnosis import Cause, Diagnosis, Fit, Score
from seqclf.evaluation.group_scores import GroupScores
from seqclf.evaluation.metrics import ClassificationMetrics
from seqclf.evaluation.recommendation import (
    Sampled,
    Training,
    _rows_to_tell,
    baseline_alarms,
    next_step,
)
from seqclf.evaluation.results import BaselineMetrics, SplitOutputs, evaluate_split

CLASSES = ["no", "yes"]
PROMISE = Guarantee(rule="min_recall", label="yes", target=0.8, confidence=0.95, backed=True, rows=40, needed=None)


def judged(recall=0.9, rows=200, positive="yes", used_for=None, share=0.5):
    """Metrics of a split, a `share` of it positive, on which the model finds a part of the positive rows."""
    positives = int(share * rows)
    labels = np.repeat([0, 1], [rows - positives, positives])
    found = np.arange(rows) - (rows - positives) < recall * positives
    predicted = np.where(found, labels, 0)
    outputs = SplitOutputs(np.eye(2)[predicted] * 3.0, labels, np.full(rows, 5), np.zeros(rows, bool))
    return evaluate_split(outputs, CLASSES, positive, Decision(), with_intervals=False, used_for=used_for)


def compared(difference, half_width, metrics=None, baseline_score=0.5):
    """Metrics of a baseline, and the model compared with it."""
    comparison = MetricComparison(
        metric="average_precision",
        model=baseline_score + difference,
        baseline=baseline_score,
        difference=difference,
        low=difference - half_width,
        high=difference + half_width,
    )
    metrics = judged() if metrics is None else metrics
    fields = {field.name: getattr(metrics, field.name) for field in dataclasses.fields(ClassificationMetrics)}
    return BaselineMetrics(**fields, model="logistic regression", split="test", comparison=[comparison])


BETTER = compared(0.2, 0.05)
TRAIN_AGAIN = Diagnosis(Cause.UNDERFITTING, "", ("optimizer.lr=1e-3", "model.hidden_size=192", "model.dropout=0.1"))
SETTINGS = {
    "model": {"cell": "lstm", "pooling": "max", "hidden_size": 96},
    "optimizer": {"lr": 3e-3},
    "trainer": {"max_epochs": 30},
    "decision": {"holdout": 0.5},
    "baseline": True,
}


def step(metrics=None, decision=Decision(), baseline=BETTER, **training):  # noqa: B008
    metrics = judged() if metrics is None else metrics
    return next_step(metrics, "test", decision, baseline, Training(**{"settings": SETTINGS, **training}))


def the_alarm(baseline, diagnosis):
    (alarm,) = baseline_alarms(baseline.comparison, Decision(), Sampled(200), diagnosis)
    return alarm


def test_a_good_model_is_to_be_used():
    assert step(bundle="runs/a/bundle").startswith("use it with seqclf predict bundle=runs/a/bundle input=")
    assert "bundle=BUNDLE" in step(bundle="runs/it's a run/bundle"), "a path that needs quotes"


def test_a_class_that_is_never_predicted_comes_first():
    rare = judged(recall=0.0, share=0.2)
    assert step(rare, baseline=compared(-0.2, 0.05)).startswith(
        "train again with loss=balanced, because of a lost rare"
    )
    weighted = {**SETTINGS, "loss": {"class_weights": "balanced"}}
    assert next_step(rare, "test", Decision(positive="yes"), None, Training(settings=weighted)) == (
        "train again with decision.min_recall=0.8."
    )


def test_balanced_classes_are_not_advised_to_be_balanced():
    advice = step(judged(recall=0.0), baseline=compared(0.05, 0.1), decision=Decision(rule="min_recall"))
    assert advice.startswith("train again with optimizer.lr=1e-3")
    assert "balanced" not in next(alarm.remedy for alarm in judged(recall=0.0).alarms)


def test_a_model_that_stopped_early_is_trained_before_more_rows_are_asked_for():
    short = step(baseline=compared(0.05, 0.1), epochs=2, settings={**SETTINGS, "trainer": {"max_epochs": 2}})
    assert short.startswith("train again with trainer.max_epochs=30")


def test_groups_are_asked_for_where_rows_come_in_groups():
    groups = GroupScores(unit="group", count=12, effective=12.0)
    assert step(replace(judged(), groups=groups), baseline=compared(0.05, 0.1)).startswith(
        "judge it on about 99 groups of test instead of 12"
    )


def test_a_difference_that_more_rows_would_show_asks_for_these_rows():
    """Four times the rows make the interval half as wide, which shows the difference in half of the samples only."""
    expected = (
        "judge it on about 1,700 rows of test instead of 200: as many would show a difference of this size with a "
        "probability of 80%."
    )
    assert step(baseline=compared(0.05, 0.1)) == expected
    alarm = the_alarm(compared(0.05, 0.1), TRAIN_AGAIN)
    assert alarm.kind == "not_better_than_baseline" and alarm.text.startswith("not shown to be better than a model")
    assert alarm.text.endswith(
        "; about 1,700 rows instead of 200 would show a difference of this size with a probability of 80%"
    )
    assert alarm.remedy == "optimizer.lr=1e-3 or model.hidden_size=192, compared by validation scores"


def power_of_advice(rows, wins, losses, repeats):
    """How often the advised rows show that the model is better, where it wins and loses these shares of the rows."""

    def comparison(counts):
        differences = np.repeat([1, -1, 0], counts)
        low, high = mean_difference_limits(differences, np.random.default_rng(0))
        mean = float(differences.mean())
        return MetricComparison(metric="accuracy", model=0.5 + mean, baseline=0.5, difference=mean, low=low, high=high)

    shares = np.array([wins, losses, 1 - wins - losses])
    needed = _rows_to_tell(comparison(np.rint(rows * shares).astype(int)), rows)
    generator = np.random.default_rng(0)
    return sum(comparison(generator.multinomial(needed, shares)).is_better for _ in range(repeats)) / repeats


def test_the_advised_rows_show_the_difference_in_four_of_five_samples():
    """Rows that make the interval as wide as the difference show it in 0.49 of the samples."""
    assert 0.75 <= power_of_advice(200, 0.13, 0.08, 200) <= 0.88


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rows", "wins", "losses"), [(100, 0.2, 0.15), (200, 0.1, 0.07), (500, 0.05, 0.03), (1000, 0.3, 0.28)]
)
def test_advised_rows_show_differences_of_any_size(rows, wins, losses):
    assert 0.76 <= power_of_advice(rows, wins, losses, 600) <= 0.9


@pytest.mark.parametrize(("difference", "half_width"), [(-0.01, 0.05), (0.001, 0.05), (0.0, 0.05)])
def test_a_model_that_does_not_beat_the_baseline_is_trained_again(difference, half_width):
    by_validation = "; compare the runs by validation scores, as test judges the last one."
    baseline = compared(difference, half_width)
    advice = f"train again with optimizer.lr=1e-3, because of underfitting{by_validation}"
    assert step(baseline=baseline) == advice
    # The last epoch was the best of a monitored metric.
    longer = step(baseline=baseline, epochs=30, best_epoch=29, settings={**SETTINGS, "monitor": "recall"})
    assert longer.startswith("train again with trainer.max_epochs=60, because of a training that is too short")
    # Rows of validation may choose between runs.
    training = Training(settings=SETTINGS)
    alone = next_step(judged(), "validation", Decision(), baseline, training)
    assert alone == advice.removesuffix(by_validation) + "."


@pytest.mark.parametrize("baseline_score", [0.5, 0.99])
def test_a_model_that_the_baseline_beats_is_never_judged_on_more_rows(baseline_score):
    """More rows would show the same."""
    baseline = compared(-0.2, 0.05, baseline_score=baseline_score)
    advice = step(baseline=baseline)
    assert advice.startswith("train again with ") and "because of a simpler model that is better" in advice
    tried = step(baseline=baseline, settings={"optimizer": {"lr": 1e-3}})
    assert tried.startswith("use the simpler model") and "judge" not in tried
    alarm = the_alarm(baseline, Diagnosis(Cause.SIMPLER_MODEL, "", ("refit=true",)))
    assert alarm.remedy == "refit=true, compared by validation scores"


def test_two_nearly_perfect_models_raise_no_alarm_and_ask_for_no_training():
    """No training can raise a perfect score, and choosing by test rows would spoil them."""
    for model in (1.0, 0.99, 0.97):
        perfect = compared(model - 1.0, 0.04, baseline_score=1.0)
        assert baseline_alarms(perfect.comparison, Decision(), Sampled(200), TRAIN_AGAIN) == []
        assert step(baseline=perfect) == (
            "use the simpler model if it is enough, or judge both on more or harder rows than these 200 of test."
        )
    better = compared(0.01, 0.02, baseline_score=0.985)
    assert step(baseline=better).startswith("judge it on about 1,700 rows of test instead of 200")
    worse = compared(-0.03, 0.01, baseline_score=1.0)
    assert the_alarm(worse, TRAIN_AGAIN).text.startswith("worse than")


def test_a_perfect_model_on_few_rows_is_judged_on_more_instead_of_trained_again():
    few = compared(0.0, 0.6, baseline_score=0.6)
    assert step(baseline=few) == (
        "judge it on more than 200 rows of test: these would not show that a perfect model is better."
    )
    alarm = the_alarm(few, TRAIN_AGAIN)
    assert alarm.remedy == "more rows to judge it by: 200 would not show that a perfect model is better"


def test_rows_that_chose_the_epoch_are_not_asked_for_more_of_them():
    step_for_validation = step(judged(used_for=["epoch"]), baseline=compared(0.05, 0.1))
    assert step_for_validation.startswith("train again with data.split.test=0.2, so that rows which chose nothing")


def test_a_worse_model_and_one_that_is_not_shown_to_be_better_are_worded_differently():
    worse, unclear = (the_alarm(compared(d, 0.05), TRAIN_AGAIN) for d in (-0.2, -0.01))
    assert worse.text.startswith("worse than a model that ignores the order: average precision 0.300 against 0.500")
    assert unclear.text.startswith("not shown to be better than")
    assert baseline_alarms(BETTER.comparison, Decision(), Sampled(200), TRAIN_AGAIN) == []
    assert baseline_alarms([], Decision(), Sampled(200), TRAIN_AGAIN) == [], "nothing to compare"


def test_a_promise_without_enough_rows_asks_for_validation_rows():
    promise = replace(PROMISE, backed=False, rows=10, needed=14)
    decision = Decision(rule="min_recall", positive="yes", targets=(promise,))
    expected = "get about 28 validation rows of yes instead of 20, which would back decision.min_recall=0.8"
    assert step(decision=decision).startswith(expected)
    assert step(decision=replace(decision, targets=(PROMISE,))).startswith("use it")
    unseparated = replace(decision, targets=(replace(promise, needed=5),))
    assert step(decision=unseparated).startswith("train again with optimizer.lr=1e-3")


def test_a_kept_promise_that_floods_asks_for_the_lowest_scores():
    labels = np.repeat([0, 1], [170, 30])
    outputs = SplitOutputs(np.eye(2)[np.r_[0, np.ones(199, int)]], labels, np.full(200, 5), np.zeros(200, bool))
    decision = Decision(rule="min_recall", positive="yes", threshold=0.01, positive_index=1, targets=(PROMISE,))
    metrics = evaluate_split(outputs, CLASSES, "yes", decision, with_intervals=False)
    assert "useless_alerts" in {alarm.kind for alarm in metrics.alarms}
    advice = step(metrics, decision=decision, predictions="runs/a/predictions.parquet")
    assert advice.startswith("look at the rows of yes with the lowest probabilities in runs/a/predictions.parquet")
    assert "decision.min_recall" in advice


def test_a_split_without_a_positive_row_asks_for_some():
    labels = np.zeros(60, int)
    outputs = SplitOutputs(np.eye(2)[labels] * 3.0, labels, np.full(60, 5), np.zeros(60, bool))
    decision = Decision(rule="min_recall", positive="yes", threshold=0.5, positive_index=1, targets=(PROMISE,))
    metrics = evaluate_split(outputs, CLASSES, "yes", decision, with_intervals=False)
    assert step(metrics, decision=decision).startswith("get rows of yes: test has none among 60")


def test_rows_that_chose_the_model_ask_for_a_test_split():
    assert "data.split.test=0.2" in step(judged(used_for=["epoch"]))


def test_a_run_without_a_baseline_asks_for_one_unless_nothing_is_known_of_the_run():
    assert step(baseline=None).startswith("train again with baseline=true")
    assert next_step(judged(), "test", Decision(), None).startswith("use it")


def test_a_refit_is_not_compared_by_validation_scores():
    """They are those of the model before the refit."""
    fit = Fit(Score("recall", 0.99), Score("recall", 0.6, (0.55, 0.65)))
    settings = {**SETTINGS, "model": {"members": 1}, "refit": False}
    assert "validation scores" in step(settings=settings, fit=fit)
    refit = step(settings=settings, fit=fit, splits={"train": judged(), "test": judged()})
    assert refit.startswith("train again with refit=true, because of overfitting") and "validation scores" not in refit
