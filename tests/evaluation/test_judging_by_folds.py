"""Rows with folds are judged at the threshold that the other folds set; the threshold of all rows ships."""

import numpy as np
import pytest
from support.binary_scores import decision_options

from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import at_the_same_ranks, choose_decision
from seqclf.evaluation.decision import CROSS_FITTED, FOLDS, HELD_OUT, Decision
from seqclf.evaluation.judge import decide, judge
from seqclf.evaluation.result import Facts
from seqclf.evaluation.scores import NETWORK, ScoredRows, Scores

TARGET = decision_options({"min_recall": 0.8})


def outputs(rows, seed, folds=None, classes=2):
    """Rows whose folds have scores of different levels, so that their thresholds differ."""
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % (2 * classes) % classes
    fold = None if folds is None else generator.permutation(rows) % folds
    logits = generator.normal(size=(rows, classes)) + 3 * np.eye(classes)[labels]
    logits += 0 if fold is None else fold[:, None] * np.eye(classes)[-1]
    return ScoredRows(logits.astype(np.float32), labels, labels + 3, labels < 0, fold=fold)


def scores(classes="ab", basis=FOLDS, **splits):
    texts, positive = {"name": NETWORK, "model": NETWORK, "label_type": "text"}, "b" if len(classes) == 2 else None
    return Scores(role=NETWORK, **texts, classes=[*classes], positive=positive, splits=splits, basis=basis)


def by_a_plain_loop(options, judged, rows, classes="ab"):
    found, positive = [], "b" if len(classes) == 2 else None
    whole = choose_decision(options, rows.logits, rows.labels, [*classes], positive)
    for row in range(len(judged.labels)):
        others = rows.fold != judged.fold[row]
        same = at_the_same_ranks(options, whole, rows.labels[others], [*classes], None)
        decision = choose_decision(same, rows.logits[others], rows.labels[others], [*classes], positive)
        found.append(decision.choose(judged.logits[row : row + 1])[0])
    return np.array(found)


TARGETS = [
    ("ab", {"min_recall": 0.8}),
    ("ab", {"max_alerts": 0.3}),
    ("ab", {"min_precision": 0.7}),
    ("ab", {"cost": 4.0}),
]


@pytest.mark.parametrize(("classes", "target"), [*TARGETS, ("abc", {"min_recall": {"a": 0.6, "c": 0.7}})])
def test_each_fold_is_judged_at_the_threshold_that_the_other_folds_set(classes, target):
    options, count = decision_options(target), len(classes)
    test = outputs(120, 0, 4, count)
    network = scores(classes, validation=outputs(80, 1, None, count), test=test)
    judged, expected = judge([network], Facts(), options), by_a_plain_loop(options, test, test, classes)
    assert (judged.judged.by_folds == expected).all()
    metrics, decision = judged.metrics, judged.decision
    assert metrics.accuracy == pytest.approx((expected == test.labels).mean()) and metrics.used_for == []
    whole = choose_decision(options, test.logits, test.labels, network.classes, network.positive)
    assert decision.offsets == whole.offsets == decide([network], options).offsets
    assert (whole.choose(test.logits) != expected).any()
    assert "threshold" in judged.splits["validation"].used_for


def test_few_positives_are_judged_at_ranks_near_that_of_the_threshold_that_ships():
    """Of 10 positives the 9th sets the threshold. Among the 8 of four fifths the same target would take the 8th."""
    generator, alerts = np.random.default_rng(0), []
    options = decision_options({"min_recall": 0.8, "confidence": None})
    for _ in range(200):
        labels = (np.arange(250) < 10).astype(int)
        margin = generator.normal(size=250) + 4 * ((np.arange(250) < 10) & (generator.random(250) < 0.95))
        rows = ScoredRows(np.stack([0 * margin, margin], 1), labels, labels + 1, labels < 0, fold=np.arange(250) % 5)
        judged = judge([scores(basis=CROSS_FITTED, threshold=rows, validation=rows)], Facts(), options)
        alerts.append(
            [judged.judged.predicted(judged.decision).mean(), (judged.decision.choose(rows.logits) == 1).mean()]
        )
    by_fifths, shipped = np.mean(alerts, axis=0)
    assert 0.7 < by_fifths / shipped < 1.3, (by_fifths, shipped)


def test_without_a_test_fifths_of_validation_are_judged_at_the_threshold_of_the_other_cross_fitted_rows():
    validation, test = outputs(100, 3, folds=5), outputs(90, 4)
    threshold = validation._replace(logits=validation.logits - np.array([[0.3, 0]], np.float32))
    judged = judge([scores(basis=CROSS_FITTED, threshold=threshold, validation=validation)], Facts(), TARGET)
    assert (judged.judged.predicted(judged.decision) == by_a_plain_loop(TARGET, validation, threshold)).all()
    whole = choose_decision(TARGET, threshold.logits, threshold.labels, ["a", "b"], "b")
    assert judged.decision.threshold == whole.threshold and judged.metrics.used_for == []
    network = scores(basis=CROSS_FITTED, threshold=threshold, validation=validation, test=test)
    judged = judge([network], Facts(chosen=("heads",)), TARGET)
    assert (judged.judged.predicted(judged.decision) == whole.choose(test.logits)).all()
    assert judged.splits["validation"].used_for == ["heads", "threshold"]


@pytest.mark.parametrize("splits", [("train", "validation", "test"), ("train", "test")])
def test_rows_of_train_set_no_threshold_whatever_their_folds(splits):
    made = {split: outputs(80, number, folds=4 if split == "train" else None) for number, split in enumerate(splits)}
    if "validation" not in made:
        with pytest.raises(InputError, match="there are no rows to set its thresholds"):
            judge([scores(basis=HELD_OUT, **made)], Facts(), TARGET)
        return
    judged = judge([scores(basis=HELD_OUT, **made)], Facts(), TARGET).decision
    rows = made["validation"]
    assert judged.threshold == choose_decision(TARGET, rows.logits, rows.labels, ["a", "b"], "b").threshold


def test_folds_change_nothing_without_a_target_with_a_known_decision_or_of_one_part():
    test, known = outputs(120, 0, folds=4), Decision().with_margin("threshold", ["a", "b"], 1.0, "b")
    alone = test._replace(fold=np.zeros(120, np.int64))
    for rows, decision in ((test, known), (test, decision_options({})), (alone, TARGET)):
        assert judge([scores(test=rows)], Facts(), decision).rows["test"].by_folds is None
