"""Rows with folds are judged at the threshold that the other folds set; the threshold of all rows ships."""

from dataclasses import replace

import numpy as np
import pytest
from support.binary_scores import decision_options, two_class_logits

from seqclf.evaluation.decisions.choose_decision import choose_decision
from seqclf.evaluation.decisions.decision import CROSS_FITTED, FOLDS, Decision
from seqclf.evaluation.judge import Facts, decide, judge
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.scores import NETWORK, Scores, read_scores, write_scores

CLASSES = ["no", "yes"]
TARGET = decision_options({"min_recall": 0.8})


def outputs(rows, seed, folds=None, classes=2, shift=0.0):
    """Rows whose folds have scores of different levels, so that their thresholds differ."""
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % (2 * classes) % classes
    fold = None if folds is None else generator.permutation(rows) % folds
    logits = generator.normal(size=(rows, classes)) + 3 * np.eye(classes)[labels] + shift
    logits = logits if fold is None else logits + fold[:, None] * np.eye(classes)[-1]
    return SplitOutputs(logits.astype(np.float32), labels, labels + 3, labels < 0, fold=fold)


def scores(positive="yes", classes=("no", "yes"), **splits):
    given = {"name": NETWORK, "model": NETWORK, "label_type": "text", "classes": list(classes), "positive": positive}
    return Scores(role=NETWORK, splits=splits, **given)


def by_a_plain_loop(options, judged, rows, classes=CLASSES, positive="yes"):
    found = np.empty(len(judged.labels), int)
    for row in range(len(found)):
        others = rows.fold != judged.fold[row]
        decision = choose_decision(options, rows.logits[others], rows.labels[others], classes, positive)
        found[row] = decision.choose(judged.logits[row : row + 1])[0]
    return found


@pytest.mark.parametrize("target", [{"min_recall": 0.8}, {"max_alerts": 0.3}, {"min_precision": 0.7}, {"cost": 4.0}])
def test_each_fold_is_judged_at_the_threshold_that_the_other_folds_set(target):
    options, test = decision_options(target), outputs(120, 0, folds=4)
    network, facts = scores(validation=outputs(80, 1), test=test), Facts(basis=FOLDS)
    judged = judge([network], facts, options)
    expected = by_a_plain_loop(options, test, test)
    assert (judged.evaluation.predicted == expected).all() and (judged.outputs["test"].predicted == expected).all()
    metrics, decision = judged.result.metrics, judged.result.decision
    assert metrics.accuracy == pytest.approx((expected == test.labels).mean())
    assert metrics.positive.alerts == expected.sum() and metrics.used_for == []
    whole = choose_decision(options, test.logits, test.labels, CLASSES, "yes")
    assert decision.threshold == whole.threshold == decide([network], options, FOLDS).threshold
    assert (whole.choose(test.logits) != expected).any()
    assert "threshold" in judged.result.splits["validation"].used_for


def test_targets_of_several_labels_are_judged_by_folds_too():
    classes, options = ["a", "b", "c"], decision_options({"min_recall": {"a": 0.6, "c": 0.7}})
    test = outputs(150, 2, folds=3, classes=3)
    judged = judge([scores(None, classes, test=test)], Facts(basis=FOLDS), options)
    expected = by_a_plain_loop(options, test, test, classes, None)
    assert (judged.evaluation.predicted == expected).all()
    found = {target.label: target.value for target in judged.result.metrics.targets}
    assert found == {
        label: pytest.approx((expected == code)[test.labels == code].mean()) for code, label in ((0, "a"), (2, "c"))
    }


def test_fifths_of_validation_are_judged_at_the_threshold_of_the_other_cross_fitted_rows():
    validation = outputs(100, 3, folds=5)
    threshold = validation._replace(logits=validation.logits + two_class_logits(np.full(100, -0.3)))
    judged = judge([scores(threshold=threshold, validation=validation)], Facts(basis=CROSS_FITTED), TARGET)
    expected = by_a_plain_loop(TARGET, validation, threshold)
    assert (judged.evaluation.predicted == expected).all()
    whole = choose_decision(TARGET, threshold.logits, threshold.labels, CLASSES, "yes")
    assert judged.result.decision.threshold == whole.threshold
    assert judged.result.metrics.used_for == [] and judged.outputs["threshold"] is threshold


def test_a_test_without_folds_is_judged_at_the_threshold_of_all_cross_fitted_rows():
    threshold, test = outputs(100, 3, folds=5), outputs(90, 4)
    network = scores(threshold=threshold, validation=outputs(100, 3, folds=5), test=test)
    judged = judge([network], Facts(basis=CROSS_FITTED, chosen=("heads",)), TARGET)
    assert (judged.evaluation.predicted == judged.result.decision.choose(test.logits)).all()
    assert judged.result.splits["validation"].used_for == ["heads", "threshold"]


def test_folds_change_nothing_without_a_target_or_with_a_known_decision():
    test = outputs(120, 0, folds=4)
    known = Decision().with_margin("threshold", CLASSES, 1.0, "yes")
    for options, facts in ((known, Facts(basis=FOLDS)), (decision_options({}), Facts(basis=FOLDS))):
        judged = judge([scores(test=test)], facts, options)
        assert judged.outputs["test"] is test
    alone = test._replace(fold=np.zeros(120, np.int64))
    assert judge([scores(test=alone)], Facts(basis=FOLDS), TARGET).outputs["test"].predicted is None


def test_folds_survive_a_file_of_scores(tmp_path):
    network = scores(test=outputs(120, 0, folds=4))
    write_scores(tmp_path / "scores.parquet", network)
    read = replace(read_scores(tmp_path / "scores.parquet"), role=NETWORK)
    results = [judge([each], Facts(basis=FOLDS), TARGET).result.to_dict() for each in (network, read)]
    assert results[0] == results[1]
