"""Alarms about metrics that a high accuracy makes look good."""

import numpy as np
import pytest

from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import confusion_metrics
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split


def alarms_by_kind(confusion, positive=None, has_targets=False):
    confusion = np.array(confusion)
    classes = ["no", "yes", "maybe"][: len(confusion)]
    metrics = confusion_metrics(confusion, classes)
    return {alarm.kind: alarm for alarm in find_alarms(metrics, classes, positive, ["yes"] * has_targets)}


def test_a_recall_of_12_percent_at_an_accuracy_of_98_percent_raises_an_alarm():
    alarms = alarms_by_kind([[9780, 20], [176, 24]], "yes")
    assert list(alarms) == ["hidden_recall"]
    assert alarms["hidden_recall"].text == "accuracy 98.0% hides the recall of yes 12.0% of 200"
    assert "decision.min_recall=0.8" in alarms["hidden_recall"].remedy


@pytest.mark.parametrize(
    ("confusion", "positive"),
    [
        ([[683, 7], [60, 51]], "yes"),  # recall 46 % at an accuracy of 92 %
        ([[40, 10, 10], [15, 20, 5], [9, 12, 9]], None),  # weak, but an accuracy of 53 % hides nothing
        ([[9750, 50], [30, 170]], "yes"),  # recall 85 %
        ([[90, 10], [12, 88]], None),
        ([[30, 4, 2], [3, 35, 1], [2, 2, 21]], None),
        ([[50, 0], [0, 3]], "yes"),
        ([[497, 1], [1, 1]], "yes"),  # two positive rows are too few to call a recall of 50 % low
        ([[99, 1, 0], [0, 100, 0], [1, 0, 0]], None),  # as is the one row of the last class
    ],
)
def test_healthy_metrics_raise_no_alarm(confusion, positive):
    assert alarms_by_kind(confusion, positive) == {}


def test_a_class_that_is_never_predicted_is_named():
    alarms = alarms_by_kind([[980, 0], [20, 0]], "yes")
    assert alarms["never_predicted"].text == "yes is never predicted: all 20 such rows are missed"
    assert alarms["below_majority"].text.startswith("accuracy 98.0% is no more than always saying no")
    alarms = alarms_by_kind([[270, 0, 0], [15, 0, 0], [15, 0, 0]])
    assert alarms["never_predicted"].text.startswith("yes, maybe are never predicted: all 30")


def test_a_recall_equal_to_the_share_of_alerts_is_no_better_than_chance():
    alarms = alarms_by_kind([[700, 300], [70, 30]], "yes")
    assert "recall of yes 30.0%, while 30.0% of all rows are given it" in alarms["no_better_than_chance"].text


def test_a_threshold_with_few_errors_hides_no_good_ranking():
    """All but four rows are alerts, so the recall of the model is hardly above that of random guesses."""
    metrics = confusion_metrics(np.array([[4, 116], [0, 60]]), ["no", "yes"])
    (alarm,) = find_alarms(metrics, ["no", "yes"], "yes", ["yes"], auroc=(0.8, 0.9))
    assert alarm.kind == "useless_alerts"
    alarm, _ = find_alarms(metrics, ["no", "yes"], "yes", ["yes"], auroc=(0.42, 0.61))
    assert alarm.text == (
        "not shown to be better than chance: the interval of the AUROC of yes is 0.420 to 0.610, and 0.5 is chance"
    )


def test_accuracy_traded_for_a_recall_target_raises_no_alarm():
    assert alarms_by_kind([[9300, 500], [20, 180]], "yes") == {}  # typical of loss=balanced
    weak_model = [[800, 180], [14, 6]]
    assert "below_majority" in alarms_by_kind(weak_model, "yes")
    assert "below_majority" not in alarms_by_kind(weak_model, "yes", has_targets=True)


@pytest.mark.parametrize(
    ("confusion", "expected"),
    [
        ([[8, 737], [0, 115]], "852 of 860 rows are alerts, of which 13.5% are yes, and 13.4% of all rows are"),
        ([[1600, 240], [136, 24]], "264 of 2,000 rows are alerts, of which 9.1% are yes, and 8.0% of all rows are"),
    ],
    ids=["nearly all rows", "by chance"],
)
def test_a_promise_that_floods_is_an_alarm(confusion, expected):
    alarms = alarms_by_kind(confusion, "yes", has_targets=True)
    assert alarms["useless_alerts"].text == f"the alerts are hardly better than random ones: {expected}"
    assert "useless_alerts" not in alarms_by_kind(confusion, "yes"), "without a target nothing was given up for recall"


@pytest.mark.parametrize("confusion", [[[700, 45], [20, 95]], [[90, 10], [1, 99]], [[9300, 500], [20, 180]]])
def test_alerts_that_find_many_more_than_random_ones_are_no_alarm(confusion):
    assert alarms_by_kind(confusion, "yes", has_targets=True) == {}


def test_a_split_with_one_class_raises_no_alarm_unless_the_positive_one_is_missing():
    assert alarms_by_kind([[10, 0], [0, 0]]) == {}
    assert alarms_by_kind([[0, 0], [0, 10]], "yes") == {}
    alarms = alarms_by_kind([[10, 0], [0, 0]], "yes")
    assert alarms["no_positive_rows"].text == "none of the 10 rows is yes: its recall is unknown"


def three_labels(target=True, seed=0):
    """Evaluation of a good model of three labels, where one outlier has set the threshold of the rarest."""
    generator, names = np.random.default_rng(seed), ["ok", "warn", "fail"]
    labels = generator.choice(3, 2000, p=[0.68, 0.3, 0.02])
    logits = np.eye(3)[labels] * 8 + generator.normal(size=(2000, 3))
    fail = Guarantee(
        rule="min_recall",
        label="fail",
        target=0.9,
        confidence=0.95,
        statement="average",
        backed=False,
        rows=13,
        needed=29,
    )
    decision = Decision(rule="min_recall", offsets=(0.0, 0.0, 7.8), targets=(fail,)) if target else Decision()
    outputs = ScoredRows(logits, labels, np.full(2000, 5), np.zeros(2000, bool))
    return judge_split(outputs, names, None, decision, with_intervals=False)


def test_a_threshold_of_one_label_of_many_that_ruins_the_model_is_an_alarm():
    """There was no alarm for any label without a positive one."""
    healthy, ruined = three_labels(target=False), three_labels()
    assert healthy.accuracy > 0.99 and ruined.accuracy < 0.7 and ruined.precision_by_class["fail"] < 0.06
    assert healthy.alarms == []
    (alarm,) = ruined.alarms
    assert (alarm.kind, alarm.label) == ("useless_alerts", "fail")
    assert f"{ruined.accuracy:.1%}" in alarm.text and f"{healthy.accuracy:.1%} at argmax" in alarm.text


def test_accuracy_given_up_for_rows_that_argmax_misses_is_no_alarm():
    """Argmax finds few of the rare rows, and a third of all rows as alerts find nearly all of them."""
    argmax = confusion_metrics(np.array([[9900, 0], [95, 5]]), ["no", "yes"])
    metrics = confusion_metrics(np.array([[6900, 3000], [10, 90]]), ["no", "yes"])
    assert find_alarms(metrics, ["no", "yes"], "yes", ["yes"], (0.85, 0.95), argmax) == []
