"""Alarms about metrics that a high accuracy makes look good."""

import numpy as np
import pytest

from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.metrics import confusion_metrics


def alarms_by_kind(confusion, positive=None, has_targets=False):
    confusion = np.array(confusion)
    classes = ["no", "yes", "maybe"][: len(confusion)]
    metrics = confusion_metrics(confusion, classes)
    return {alarm.kind: alarm for alarm in find_alarms(metrics, classes, positive, has_targets)}


def test_a_recall_of_12_percent_at_an_accuracy_of_98_percent_raises_an_alarm():
    alarms = alarms_by_kind([[9780, 20], [176, 24]], "yes")
    assert list(alarms) == ["hidden_recall"]
    assert alarms["hidden_recall"].text == "accuracy 98.0% hides the recall of yes 12.0% of 200"
    assert "decision.min_recall=0.8" in alarms["hidden_recall"].remedy


def test_a_recall_far_below_a_moderate_accuracy_raises_an_alarm():
    alarms = alarms_by_kind([[683, 7], [97, 14]], "yes")
    assert alarms["hidden_recall"].text == "accuracy 87.0% hides the recall of yes 12.6% of 111"


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
    alarms = alarms_by_kind([[90, 0, 0], [5, 0, 0], [5, 0, 0]])
    assert alarms["never_predicted"].text.startswith("yes, maybe are never predicted: all 10")


def test_a_recall_equal_to_the_share_of_alerts_is_no_better_than_chance():
    alarms = alarms_by_kind([[700, 300], [70, 30]], "yes")
    assert "recall of yes 30.0%, while 30.0% of all rows are given it" in alarms["no_better_than_chance"].text


def test_accuracy_traded_for_a_recall_target_raises_no_alarm():
    assert alarms_by_kind([[9300, 500], [20, 180]], "yes") == {}  # typical of loss=balanced
    weak_model = [[800, 180], [14, 6]]
    assert "below_majority" in alarms_by_kind(weak_model, "yes")
    assert "below_majority" not in alarms_by_kind(weak_model, "yes", has_targets=True)


def test_a_split_with_one_class_raises_no_alarm():
    assert alarms_by_kind([[10, 0], [0, 0]], "yes") == {}
