"""Judging scores that were written by hand gives what plain NumPy gives."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, log_loss
from support.binary_scores import decision_options

from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.decisions.decision import Decision
from seqclf.evaluation.judge import Facts, judge
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.scores import HEAD, NETWORK, ORDER_BLIND, Scores, taken

CLASSES = ["no", "yes"]
ARGMAX = dict.fromkeys(("min_recall", "min_precision", "max_alerts", "cost"))
ARGMAX |= {"confidence": 0.95, "holdout": 0.5, "provisional": False, "calibrate": False}


def outputs(rows, seed, strength):
    """Rows whose labels the logits know as well as `strength` says."""
    labels = np.random.default_rng(seed).integers(0, 2, rows)
    noise = np.random.default_rng(seed + 100).normal(size=(rows, 2))
    logits = (noise + strength * np.eye(2)[labels]).astype(np.float32)
    ids = pa.array([f"{seed}-{row}" for row in range(rows)], pa.string())
    return SplitOutputs(logits, labels, labels + 3, labels < 0, ids=ids)


def scores(strength, role=NETWORK, name="network", splits=("train", "validation", "threshold", "test")):
    sizes = {"train": 300, "validation": 100, "threshold": 120, "test": 200}
    made = {split: outputs(sizes[split], number, strength) for number, split in enumerate(sizes) if split in splits}
    return Scores(role=role, name=name, model=name, classes=CLASSES, label_type="text", positive="yes", splits=made)


def test_the_metrics_are_those_of_numpy_and_scikit_learn():
    network = scores(2.0)
    result = judge([network], Facts(), decision_options(ARGMAX)).result
    assert list(result.splits) == ["train", "validation", "test"] and result.split == "test"
    for split, metrics in result.splits.items():
        rows = network.splits[split]
        shares, predicted = softmax(rows.logits), rows.logits.argmax(axis=1)
        assert metrics.accuracy == pytest.approx((predicted == rows.labels).mean())
        assert metrics.recall == pytest.approx(balanced_accuracy_score(rows.labels, predicted))
        assert metrics.loss == pytest.approx(log_loss(rows.labels, shares))
        expected = average_precision_score(rows.labels, shares[:, 1])
        assert metrics.positive.average_precision == pytest.approx(expected)
    assert result.holdout_rows == 120 and result.calibration is not None


def test_held_out_rows_back_a_guarantee_and_validation_rows_do_not():
    options = decision_options({**ARGMAX, "min_recall": 0.8})
    (backed,) = judge([scores(2.0)], Facts(), options).result.decision.targets
    margins = np.diff(scores(2.0).splits["threshold"].logits.astype(float)).ravel()
    found = (margins >= 0)[scores(2.0).splits["threshold"].labels == 1]
    assert backed.backed and backed.rows == len(found)
    validation = [scores(2.0, splits=("train", "validation", "test"))]
    assert judge(validation, Facts(), options).result.decision.targets[0].backed, "of a file, validation is untouched"
    without = judge([replace(validation[0], basis="chosen")], Facts(), options).result
    assert not without.decision.targets[0].backed and "threshold" in without.splits["validation"].used_for


def test_validation_chooses_the_order_blind_model_and_test_compares_it():
    weak, strong = (scores(strength, ORDER_BLIND, f"model {strength}") for strength in (0.2, 1.0))
    network = scores(2.0)
    result = judge([weak, strong, scores(1.5, HEAD, "ngrams"), network], Facts(), decision_options(ARGMAX)).result
    assert result.baseline.model == "model 1.0" and len(result.baseline.candidates) == 2
    assert [rung.name for rung in result.ladder] == ["order-blind", "ngrams", "network"]
    rows = network.splits["test"]
    difference = average_precision_score(rows.labels, softmax(rows.logits)[:, 1])
    difference -= average_precision_score(rows.labels, strong.probabilities("test")[:, 1])
    assert result.baseline.comparison[0].difference == pytest.approx(difference)


def test_a_sample_of_rows_is_compared_on_that_sample():
    order = np.random.default_rng(0).permutation(200)[:150]
    blind, network = scores(1.0, ORDER_BLIND, "counts"), scores(2.0)
    rows = blind.splits["test"]
    names = ("logits", "labels", "lengths", "truncated")
    part = rows._replace(**{name: getattr(rows, name)[order] for name in names}, ids=rows.ids.take(pa.array(order)))
    sampled = replace(blind, splits={**blind.splits, "test": part})
    ladder = judge([sampled, network], Facts(), decision_options(ARGMAX)).result.ladder
    assert [rung.rows for rung in ladder] == [150, 150]
    right = network.splits["test"].logits.argmax(axis=1) == network.splits["test"].labels
    assert ladder[-1].accuracy == pytest.approx(right[order].mean())


def test_a_decision_that_is_known_is_applied_as_it_is():
    decision = Decision().with_margin("threshold", CLASSES, 1.0, "yes")
    network = scores(2.0, splits=("test",))
    result = judge([network], Facts(no_baseline="none"), decision).result
    rows = network.splits["test"]
    expected = np.diff(rows.logits.astype(float)).ravel() > 1.0
    assert result.metrics.accuracy == pytest.approx((expected == rows.labels).mean())
    assert result.calibration is None and result.targets == () and result.no_baseline == "none"


def test_scores_that_do_not_fit_are_refused():
    network = scores(2.0)
    with pytest.raises(InputError, match="scores of counts: are for other classes; score no, yes"):
        judge([replace(scores(1.0, HEAD, "counts"), classes=["no", "on"]), network], Facts(), Decision())
    few = scores(1.0, HEAD, "counts")
    short = few.splits["test"]._replace(
        logits=few.splits["test"].logits[:9],
        labels=few.splits["test"].labels[:9],
        ids=few.splits["test"].ids[:9],
    )
    with pytest.raises(InputError, match="scores of counts: lack rows of test"):
        judge([replace(few, splits={"test": short}), network], Facts(), Decision())
    with pytest.raises(InputError, match="decision: there are no rows to set its thresholds"):
        judge([scores(2.0, splits=("test",))], Facts(), decision_options({**ARGMAX, "min_recall": 0.8}))


def test_a_row_that_stands_twice_does_not_take_the_place_of_another():
    twice = np.array([0, 0, *range(2, 200)])
    head = scores(1.0, HEAD, "counts")
    doubled = replace(head, splits={"test": taken(head.splits["test"], twice)})
    with pytest.raises(InputError, match="split test: has ids that repeat"):
        judge([doubled, scores(2.0)], Facts(), decision_options(ARGMAX))
    numbered = [
        replace(one, splits={"test": one.splits["test"]._replace(positions=positions)})
        for one, positions in ((doubled, twice), (scores(2.0), np.arange(200)))
    ]
    with pytest.raises(InputError, match="scores of counts: lack rows of test"):
        judge(numbered, Facts(), Decision())
