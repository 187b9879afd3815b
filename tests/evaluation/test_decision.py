"""Decisions: targets of two and of several classes, thresholds set at prediction, and settings that are refused."""

import numpy as np
import pytest
from support.binary_scores import CLASSES, SETTINGS, decision_options, sample_scores, two_class_logits

from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.evaluation.result import reasons_against
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split


def test_a_decision_read_back_from_json_decides_the_same():
    scores, is_positive = sample_scores(np.random.default_rng(1))
    logits = two_class_logits(scores)
    settings = SETTINGS | {"min_recall": 0.8, "calibrate": True}
    decision = choose_decision(decision_options(settings), logits, is_positive.astype(int), CLASSES, "yes")
    restored = Decision.from_dict(decision.to_dict())
    assert restored == decision
    predicted = restored.choose(logits)
    np.testing.assert_array_equal(predicted == 1, decision.probabilities(logits)[:, 1] >= decision.threshold)
    assert (predicted[is_positive] == 1).mean() >= 0.8


def test_scores_whose_probabilities_round_to_one_are_still_ranked():
    scores, is_positive = np.repeat([40.0, 60.0], 500), np.repeat([False, True], 500)
    logits = two_class_logits(scores)
    decision = choose_decision(decision_options({"min_recall": 0.9}), logits, is_positive.astype(int), CLASSES, "yes")
    np.testing.assert_array_equal(decision.choose(logits) == 1, is_positive)


def test_each_of_several_classes_keeps_its_target():
    generator = np.random.default_rng(2)
    labels = generator.choice(3, 3000, p=[0.8, 0.15, 0.05])
    logits = (generator.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]).astype(np.float32) + np.log([0.8, 0.15, 0.05])
    classes = ["calm", "odd", "wild"]

    def recall(predicted, code):
        return (predicted[labels == code] == code).mean()

    argmax = choose_decision(decision_options(SETTINGS), logits, labels, classes, None)
    assert recall(argmax.choose(logits), 2) < 0.7
    decision = choose_decision(
        decision_options({"min_recall": {"odd": 0.75, "wild": 0.8}}), logits, labels, classes, None
    )
    predicted = decision.choose(logits)
    assert [target.backed for target in decision.targets] == [True, True]
    assert recall(predicted, 1) >= 0.75
    assert recall(predicted, 2) >= 0.8


def test_targets_that_exclude_each_other_are_in_conflict():
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, 600)
    uninformative_logits = generator.normal(size=(600, 3)).astype(np.float32)
    settings = SETTINGS | {"min_recall": {"calm": 0.9, "odd": 0.9}}
    decision = choose_decision(decision_options(settings), uninformative_logits, labels, ["calm", "odd", "wild"], None)
    assert any(target.conflict for target in decision.targets)


def test_guarantees_for_several_classes_share_the_risk():
    """Two guarantees of 90 %, each at the full risk, hold together in 82 to 87 % of the simulations below."""
    rows = (np.zeros((6, 3)), np.repeat([0, 1, 2], 2), list("abc"), None)
    both = choose_decision(decision_options({"min_recall": {"a": 0.8, "b": 0.8}, "confidence": 0.9}), *rows)
    alone = choose_decision(decision_options({"min_recall": {"a": 0.8}, "confidence": 0.95}), *rows)
    assert [target.needed for target in both.targets] == [alone.targets[0].needed] * 2
    assert [target.confidence for target in both.targets] == [0.9, 0.9], "the confidence is that of all together"


def share_of_broken_joint_guarantees(counts, targets, separation, repeats):
    """Share of the simulations with all guarantees backed in which new data break at least one of them."""
    generator = np.random.default_rng(0)
    classes = list("abcdefghi")[: len(counts)]
    labels = np.repeat(np.arange(len(counts)), counts)
    means = separation * np.eye(len(counts))
    means[:2, :2] += 0.6 * separation * np.eye(2)[::-1]  # the first two classes are hard to tell apart
    broken = backed = 0
    for _ in range(repeats):
        heldout, new = (generator.normal(size=(len(labels), len(counts))) + means[labels] for _ in range(2))
        settings = SETTINGS | {"min_recall": targets, "confidence": 0.9}
        decision = choose_decision(decision_options(settings), heldout, labels, classes, None)
        if all(target.backed for target in decision.targets):
            backed += 1
            predicted = decision.choose(new)
            for label, target in targets.items():
                rows = labels == classes.index(label)
                if (predicted[rows] == labels[rows]).mean() < target:
                    broken += 1
                    break
    assert backed > 0.3 * repeats
    return broken / backed


@pytest.mark.soak
@pytest.mark.parametrize(
    ("counts", "targets"),
    [
        ((200, 100, 60), {"b": 0.7, "c": 0.7}),
        ((300, 300, 300), {"a": 0.6, "b": 0.6}),
        ((200, 200, 100), {"a": 0.5, "b": 0.5, "c": 0.7}),
        ((100, 80, 60, 60, 60), {"b": 0.6, "c": 0.6, "d": 0.6, "e": 0.6}),
    ],
)
def test_guarantees_for_several_classes_hold_together_on_new_data(counts, targets):
    broken = share_of_broken_joint_guarantees(counts, targets, 2.5, 500)
    assert broken <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 500)


@pytest.mark.parametrize("confidence", [None, 0.95])
@pytest.mark.parametrize("budget", [0.5, 0.03])
def test_a_recall_has_its_threshold_within_its_budget_of_alerts_and_else_that_of_the_budget(budget, confidence):
    scores, is_positive = sample_scores(np.random.default_rng(1))
    rows = (two_class_logits(scores), is_positive.astype(int), CLASSES, "yes")
    settings = {"confidence": confidence, "min_recall": 0.8, "max_alerts": budget}
    decision = choose_decision(decision_options(settings), *rows)
    alone = {
        rule: choose_decision(decision_options({"confidence": confidence, rule: settings[rule]}), *rows)
        for rule in ("min_recall", "max_alerts")
    }
    assert decision.threshold == max(other.threshold for other in alone.values())
    recall, alerts = decision.targets
    fits = budget == 0.5
    assert alerts.backed and recall.backed == fits and (recall.takes is None) == fits
    if not fits:
        outputs = ScoredRows(rows[0], rows[1], rows[1] + 1, rows[1] < 0)
        metrics = judge_split(outputs, CLASSES, "yes", decision, with_intervals=False)
        for change, rule in ((1e-5, "min_recall"), (-1e-2, "max_alerts")):  # the budget that it takes is enough
            changed = decision_options({**settings, "max_alerts": recall.takes + change})
            assert choose_decision(changed, *rows).rule == rule
        assert recall.reached == pytest.approx(metrics.positive.recall)
        reason = f"80% of yes take a budget of {recall.takes:.1%} alerts; at 3% it finds {recall.reached:.0%}"
        assert reasons_against(metrics, decision, "test")[0] == reason
        assert [target.status for target in metrics.targets] == ["ruled_out", "met"]


@pytest.mark.parametrize("positive", ["yes", None])
def test_a_target_for_a_label_without_validation_rows_leaves_the_argmax(positive):
    classes = CLASSES if positive else ["no", "maybe", "yes"]
    logits = np.random.default_rng(0).normal(size=(50, len(classes))).astype(np.float32)
    settings = SETTINGS | {"min_recall": 0.8 if positive else {"yes": 0.8}}
    decision = choose_decision(decision_options(settings), logits, np.zeros(50, int), classes, positive)
    assert not decision.targets[0].backed and decision.targets[0].needed
    np.testing.assert_array_equal(decision.choose(logits), logits.argmax(1))


BUNDLE_DECISION = Decision(positive="yes", temperature=2.0).with_margin("min_recall", CLASSES, -1.0, "yes")
LOGITS = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
POSITIVE_LABELS = (("yes", 1), ("no", 0))


def override(threshold, positive):
    return override_threshold(BUNDLE_DECISION, threshold, positive, CLASSES)


def test_a_bundles_threshold_is_kept_or_replaced_by_argmax():
    assert override(None, "yes") is BUNDLE_DECISION
    assert override("argmax", "yes") == Decision(positive="yes", temperature=2.0)


@pytest.mark.parametrize(("positive", "index"), POSITIVE_LABELS)
def test_a_threshold_set_at_prediction_compares_probabilities(positive, index):
    decision = override(0.7, positive)
    is_positive = decision.probabilities(LOGITS)[:, index] >= 0.7
    np.testing.assert_array_equal(decision.choose(LOGITS) == index, is_positive)
    assert decision.threshold_of(index) == pytest.approx(0.7)
    assert decision.threshold_of(1 - index) == pytest.approx(0.3)
    for row in (5, 17):
        at_the_row = override(float(BUNDLE_DECISION.probabilities(LOGITS)[row, index]), positive)
        assert at_the_row.choose(LOGITS)[row] == index, "a probability equal to the threshold is positive"
    tie = override(0.5, positive).choose(np.zeros((1, 2), np.float32))
    assert tie.tolist() == [index]


@pytest.mark.parametrize(("positive", "index"), POSITIVE_LABELS)
@pytest.mark.parametrize("scale", [1, 1e4])  # the larger one rounds all probabilities to 0 or 1
def test_at_a_threshold_of_0_all_rows_are_positive_and_at_1_none(positive, index, scale):
    assert (override(0, positive).choose(LOGITS * scale) == index).all()
    assert (override(1, positive).choose(LOGITS * scale) != index).all()


@pytest.mark.parametrize(
    ("invalid", "classes", "positive", "message"),
    [
        ({"min_recall": 0.8, "cost": 5}, CLASSES, "yes", "decision.min_recall and decision.cost: set one of them"),
        ({"min_recall": {"no": 0.8}}, CLASSES, "yes", "with two classes it is for the positive label, yes"),
        ({"min_recall": {"maybe": 0.8}}, CLASSES, "yes", "no label 'maybe'; the labels are no, yes"),
        ({"min_recall": 0.8}, ["a", "b", "c"], None, "set targets by label"),
        ({"max_alerts": 0.1}, ["a", "b", "c"], None, "the data has 3; use decision.min_recall"),
    ],
)
def test_invalid_decision_settings_are_refused(invalid, classes, positive, message):
    with pytest.raises(InputError, match=message):
        choose_decision(
            decision_options(invalid), np.zeros((4, len(classes))), np.array([0, 1, 0, 1]), classes, positive
        )
