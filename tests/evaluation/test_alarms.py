"""Alarms for scores that accuracy makes look good."""

import numpy as np
import pytest

from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.metrics import confusion_metrics


def raised(confusion, positive=None, has_targets=False):
    confusion = np.array(confusion)
    classes = ["no", "yes", "maybe"][: len(confusion)]
    metrics = confusion_metrics(confusion, classes)
    return {alarm.kind: alarm for alarm in find_alarms(metrics, classes, positive, has_targets)}


def test_98_percent_accuracy_and_12_percent_recall_raise_the_alarm():
    found = raised([[9780, 20], [176, 24]], "yes")
    assert list(found) == ["hidden_recall"]
    assert found["hidden_recall"].text == "accuracy 98.0% hides the recall of yes 12.0% of 200"
    assert "decision.min_recall=0.8" in found["hidden_recall"].remedy


def test_a_recall_far_below_a_middling_accuracy_raises_the_alarm():
    found = raised([[683, 7], [97, 14]], "yes")
    assert found["hidden_recall"].text == "accuracy 87.0% hides the recall of yes 12.6% of 111"


@pytest.mark.parametrize(
    ("confusion", "positive"),
    [
        ([[683, 7], [60, 51]], "yes"),  # recall 46 % at 92 %
        ([[40, 10, 10], [15, 20, 5], [9, 12, 9]], None),  # weak, but an accuracy of 53 % hides nothing
        ([[9750, 50], [30, 170]], "yes"),  # recall 85 %
        ([[90, 10], [12, 88]], None),
        ([[30, 4, 2], [3, 35, 1], [2, 2, 21]], None),
        ([[50, 0], [0, 3]], "yes"),
        ([[497, 1], [1, 1]], "yes"),  # one of two: nothing is known
        ([[99, 1, 0], [0, 100, 0], [1, 0, 0]], None),  # nor of a class of one row
    ],
)
def test_healthy_scores_raise_none(confusion, positive):
    assert raised(confusion, positive) == {}


def test_a_class_that_is_never_predicted_is_named():
    found = raised([[980, 0], [20, 0]], "yes")
    assert found["never_predicted"].text == "yes is never predicted: all 20 such rows are missed"
    assert found["below_majority"].text.startswith("accuracy 98.0% is no more than always saying no")
    several = raised([[90, 0, 0], [5, 0, 0], [5, 0, 0]])
    assert several["never_predicted"].text.startswith("yes, maybe are never predicted: all 10")


def test_alerts_at_random_are_no_recall():
    found = raised([[700, 300], [70, 30]], "yes")
    assert "yes: recall 30.0%, while 30.0% of all rows are given it" in found["no_better_than_chance"].text


def test_accuracy_that_was_given_up_for_a_promised_recall_is_no_alarm():
    assert raised([[9300, 500], [20, 180]], "yes") == {}  # as loss=balanced does
    weak = [[800, 180], [14, 6]]
    assert "below_majority" in raised(weak, "yes")
    assert "below_majority" not in raised(weak, "yes", has_targets=True)


def test_of_a_single_class_there_is_nothing_to_say():
    assert raised([[10, 0], [0, 0]], "yes") == {}
