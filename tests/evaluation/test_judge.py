"""Judging scores that were written by hand gives what plain NumPy gives."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, balanced_accuracy_score, log_loss
from support.binary_scores import decision_options

from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.evaluation.judge import judge
from seqclf.evaluation.ranking import ranking_metrics, ranking_scores
from seqclf.evaluation.result import Facts, RunResult
from seqclf.evaluation.scores import HEAD, NETWORK, ORDER_BLIND, ScoredRows, Scores
from seqclf.training.epoch_metrics import EvaluationMetrics

CLASSES = ["no", "yes"]
ARGMAX = dict.fromkeys(("min_recall", "min_precision", "max_alerts", "cost"))
ARGMAX |= {"confidence": 0.95, "holdout": 0.5, "provisional": False, "calibrate": False}


def outputs(rows, seed, strength):
    """Rows whose labels the logits know as well as `strength` says."""
    labels = np.random.default_rng(seed).integers(0, 2, rows)
    noise = np.random.default_rng(seed + 100).normal(size=(rows, 2))
    logits = (noise + strength * np.eye(2)[labels]).astype(np.float32)
    ids = pa.array([f"{seed}-{row}" for row in range(rows)], pa.string())
    return ScoredRows(logits, labels, labels + 3, labels < 0, ids=ids)


def scores(strength, role=NETWORK, name="network", splits=("train", "validation", "threshold", "test")):
    sizes = {"train": 300, "validation": 100, "threshold": 120, "test": 200}
    made = {split: outputs(sizes[split], number, strength) for number, split in enumerate(sizes) if split in splits}
    return Scores(role=role, name=name, model=name, classes=CLASSES, label_type="text", positive="yes", splits=made)


def test_the_metrics_are_those_of_numpy_and_scikit_learn():
    network = scores(2.0)
    result = judge([network], Facts(), decision_options(ARGMAX))
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


@pytest.mark.parametrize(("of_train", "remedy"), [(5.0, "more dropout"), (0.0, "more epochs")])
def test_more_epochs_are_advised_only_where_training_rows_are_not_known(of_train, remedy):
    network = scores(-0.5)
    network = replace(network, splits={**network.splits, "train": outputs(300, 0, of_train)})
    alarms = judge([network], Facts(), Decision(positive="yes")).metrics.alarms
    assert alarms and all(remedy in alarm.remedy for alarm in alarms)


def saturated(rows, shift):
    """The rows with margins around 60, moved by `shift`."""
    logits = np.c_[np.zeros(len(rows.labels)), 60 + 3 * np.diff(rows.logits.astype(np.float64)).ravel() - shift]
    return rows._replace(logits=logits)


def test_probabilities_that_round_to_one_are_ranked_by_their_margins():
    options = decision_options({**ARGMAX, "min_recall": 0.8})
    judged = []
    for shift in (0.0, 60.0):
        network = scores(1.5)
        rows = {split: saturated(outputs, shift) for split, outputs in network.splits.items()}
        judged.append(judge([scores(0.5, HEAD, "counts"), replace(network, splits=rows)], Facts(), options))
    (rounded, plain), rows = judged, judged[0].rows["test"]
    assert rounded.metrics.positive == plain.metrics.positive and rounded.metrics.positive.average_precision > 0.8
    assert rounded.metrics.intervals.positive == plain.metrics.intervals.positive
    assert rounded.others[0].comparisons[0] == plain.others[0].comparisons[0]
    assert [row.id for row in rounded.forcing] == [row.id for row in plain.forcing]
    margins, alerts = rows.logits[:, 1], rounded.decision.choose(rows.logits) == 1
    assert rounded.decision.threshold == 1.0 and 0 < alerts.sum() < len(alerts)
    assert margins[alerts].min() > margins[~alerts].max()
    by_hand = override_threshold(Decision(), 0.999, "yes", CLASSES).choose(rows.logits)
    assert by_hand.all()  # a threshold that is written as a probability is passed by all that round to more


@pytest.mark.parametrize("classes", [2, 4])
def test_margins_of_each_class_rank_in_training_as_in_judging(classes):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, 300)
    logits = generator.normal(size=(300, classes)) * 30 + 40 * np.eye(classes)[labels]
    others = [np.logaddexp.reduce(np.delete(logits, code, axis=1), axis=1) for code in range(classes)]
    expected = np.mean(
        [average_precision_score(labels == code, logits[:, code] - others[code]) for code in range(classes)]
    )
    assert ranking_metrics(labels, softmax(logits))["average_precision"] == pytest.approx(expected, abs=1e-12)
    metrics = EvaluationMetrics(classes, ranked=True)
    metrics.update(torch.tensor(logits), torch.tensor(labels), torch.tensor(0.1))
    assert metrics.compute().scores["average_precision"] == pytest.approx(expected, abs=1e-6)


def test_probabilities_that_tie_share_their_rank():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert rankdata(ranking_scores(probabilities)[:, 0]).tolist() == [3.5, 3.5, 2.0, 1.0, 5.0]


def test_held_out_rows_back_a_guarantee_and_validation_rows_do_not():
    options = decision_options({**ARGMAX, "min_recall": 0.8})
    (backed,) = judge([scores(2.0)], Facts(), options).decision.targets
    margins = np.diff(scores(2.0).splits["threshold"].logits.astype(float)).ravel()
    found = (margins >= 0)[scores(2.0).splits["threshold"].labels == 1]
    assert backed.backed and backed.rows == len(found)
    validation = [scores(2.0, splits=("train", "validation", "test"))]
    assert judge(validation, Facts(), options).decision.targets[0].backed, "of a file, validation is untouched"
    without = judge([replace(validation[0], basis="chosen")], Facts(), options)
    assert not without.decision.targets[0].backed and "threshold" in without.splits["validation"].used_for


def test_validation_chooses_the_order_blind_model_and_test_compares_it():
    weak, strong = (scores(strength, ORDER_BLIND, f"model {strength}") for strength in (0.2, 1.0))
    network = scores(2.0)
    result = judge([weak, strong, scores(1.5, HEAD, "ngrams"), network], Facts(), decision_options(ARGMAX))
    assert result.baseline.kind == "model 1.0" and len(result.baseline.candidates) == 2
    (head,) = result.others
    assert head.name == "ngrams" and head.comparisons[0].model == result.baseline.comparisons[0].model
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == replace(result, forcing=())
    rows = network.splits["test"]
    difference = average_precision_score(rows.labels, softmax(rows.logits)[:, 1])
    difference -= average_precision_score(rows.labels, strong.splits["test"].probabilities()[:, 1])
    assert result.baseline.comparisons[0].difference == pytest.approx(difference)


def test_a_sample_of_rows_is_compared_on_that_sample():
    order = np.random.default_rng(0).permutation(200)[:150]
    blind, network = scores(1.0, ORDER_BLIND, "counts"), scores(2.0)
    rows = blind.splits["test"]
    names = ("logits", "labels", "lengths", "truncated")
    part = rows._replace(**{name: getattr(rows, name)[order] for name in names}, ids=rows.ids.take(pa.array(order)))
    sampled = replace(blind, splits={**blind.splits, "test": part})
    baseline = judge([sampled, network], Facts(), decision_options(ARGMAX)).baseline
    right = network.splits["test"].logits.argmax(axis=1) == network.splits["test"].labels
    assert baseline.rows == 150 and baseline.comparisons[-1].model == pytest.approx(right[order].mean())


def test_a_decision_that_is_known_is_applied_as_it_is():
    decision = Decision().with_margin("threshold", CLASSES, 1.0, "yes")
    network = scores(2.0, splits=("test",))
    result = judge([network], Facts(no_baseline="none"), decision)
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
    doubled = replace(head, splits={"test": head.splits["test"].take(twice)})
    with pytest.raises(InputError, match="split test: has ids that repeat"):
        judge([doubled, scores(2.0)], Facts(), decision_options(ARGMAX))
    numbered = [
        replace(one, splits={"test": one.splits["test"]._replace(positions=positions)})
        for one, positions in ((doubled, twice), (scores(2.0), np.arange(200)))
    ]
    with pytest.raises(InputError, match="scores of counts: lack rows of test"):
        judge(numbered, Facts(), Decision())


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("monitor", ["recall", "accuracy"])
def test_each_other_model_has_its_metrics_and_its_comparison_with_the_network(classes, monitor):
    generator = np.random.default_rng(1)
    labels, names = generator.integers(0, classes, 300), [f"class {number}" for number in range(classes)]
    positive, models = names[1] if classes == 2 else None, []
    for name, separation in (("kernels", 1), ("statistics", 0.5), ("network", 2)):
        rows = ScoredRows(
            generator.normal(size=(300, classes)) + separation * np.eye(classes)[labels], labels, labels, labels < 0
        )
        role = NETWORK if name == "network" else HEAD
        facts = {"name": name, "model": f"{name} model", "classes": names, "label_type": "text", "positive": positive}
        models.append(Scores(role=role, splits={"test": rows._replace(positions=np.arange(300))}, **facts))
    result = judge(models, Facts(monitor=monitor), Decision(positive=positive))
    assert [other.name for other in result.others] == ["kernels", "statistics"]
    for other, scores in zip(result.others, models, strict=False):
        shares, predicted = (
            function(scores.splits["test"]) for function in (ScoredRows.probabilities, ScoredRows.predicted)
        )
        assert other.loss == pytest.approx(log_loss(labels, shares))
        assert other.recall == pytest.approx(balanced_accuracy_score(labels, predicted))
        is_class, parts = np.eye(classes)[labels], [1] if classes == 2 else range(classes)
        precision = np.mean([average_precision_score(is_class[:, part], shares[:, part]) for part in parts])
        expected = ("accuracy", other.accuracy) if monitor == "accuracy" else ("average_precision", precision)
        first = other.comparisons[0]
        assert (first.metric, first.baseline) == (expected[0], pytest.approx(expected[1])) and first.is_better
