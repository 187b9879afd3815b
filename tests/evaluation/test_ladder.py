"""The ladder holds the metrics of each model on the same rows, and its gain over the model below."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn import metrics

from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.ladder import Contender, JudgedRows, build_ladder
from seqclf.evaluation.results import SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult

NAMES = ("order-blind", "kernels", "statistics", "network")


def contenders(labels, classes, seed=0):
    """Models of growing separation on the same rows."""
    generator = np.random.default_rng(seed)
    found = {}
    for separation, name in enumerate(NAMES):
        logits = generator.normal(size=(len(labels), classes))
        logits[np.arange(len(labels)), labels] += separation
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found[name] = Contender(f"model {separation}", RowPredictions(probabilities.argmax(axis=1), probabilities))
    return found


def judged_rows(classes, rows=300, monitor="recall", seed=1):
    labels = np.random.default_rng(seed).integers(0, classes, rows)
    names = [f"class {number}" for number in range(classes)]
    return JudgedRows(labels, names, "class 1" if classes == 2 else None, monitor)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("monitor", ["recall", "accuracy"])
def test_each_rung_has_the_metrics_of_its_model(classes, monitor):
    rows = judged_rows(classes, monitor=monitor)
    models = contenders(rows.labels, classes)
    ladder = build_ladder(models, rows)
    assert [rung.name for rung in ladder] == list(NAMES)
    for rung, (model, (predicted, scores), _) in zip(ladder, models.values(), strict=True):
        assert (rung.model, rung.rows) == (model, len(rows.labels))
        assert rung.loss == pytest.approx(metrics.log_loss(rows.labels, scores))
        assert rung.accuracy == pytest.approx(metrics.accuracy_score(rows.labels, predicted))
        assert rung.recall == pytest.approx(metrics.balanced_accuracy_score(rows.labels, predicted))
        is_class = np.eye(classes)[rows.labels]
        parts = [1] if classes == 2 else range(classes)
        precision = np.mean([metrics.average_precision_score(is_class[:, part], scores[:, part]) for part in parts])
        expected = ("accuracy", rung.accuracy) if monitor == "accuracy" else ("average_precision", precision)
        assert (rung.metric, rung.value) == (expected[0], pytest.approx(expected[1]))


def test_each_gain_is_the_paired_comparison_with_the_rung_below():
    rows = judged_rows(3)
    models = contenders(rows.labels, 3)
    ladder = build_ladder(models, rows)
    assert ladder[0].gain is None
    for lower, upper in pairwise(ladder):
        above, below = models[upper.name].predictions, models[lower.name].predictions
        assert upper.gain == compare_models(rows.labels, above, below)
        assert upper.gain[0].difference == pytest.approx(upper.value - lower.value)


def test_what_is_known_is_not_computed_again():
    rows = judged_rows(3)
    models = contenders(rows.labels, 3)
    known = rows.metrics(models["network"].predictions)
    models["network"] = models["network"]._replace(metrics=replace(known, loss=7.0))
    comparison = [
        replace(entry, difference=0.125) for entry in rows.compare(*(models[name].predictions for name in NAMES[:2]))
    ]
    ladder = build_ladder(models, rows, {("kernels", "order-blind"): comparison})
    assert ladder[-1].loss == 7.0 and ladder[1].gain == comparison and ladder[2].gain[0].difference != 0.125


def test_a_single_model_is_no_ladder():
    rows = judged_rows(2)
    models = contenders(rows.labels, 2)
    assert build_ladder({"network": models["network"]}, rows) == build_ladder({}, rows) == ()


def test_rows_without_a_positive_label_are_compared_by_accuracy():
    rows = judged_rows(2)._replace(labels=np.zeros(50, np.int64))
    ladder = build_ladder(contenders(rows.labels, 2), rows)
    assert {rung.metric for rung in ladder} == {"accuracy"}
    assert all(rung.value == rung.accuracy for rung in ladder)


def test_the_ladder_is_read_from_metrics_json_as_it_was_written():
    rows = judged_rows(2)
    outputs = SplitOutputs(np.eye(2)[rows.labels] * 3.0, rows.labels, rows.labels + 3, rows.labels < 0)
    split = evaluate_split(outputs, rows.classes, rows.positive, Decision(), with_intervals=False)
    result = RunResult(
        splits={"test": split}, decision=Decision(), ladder=build_ladder(contenders(rows.labels, 2), rows)
    )
    state = json.loads(json.dumps(result.to_dict()))
    assert [rung["name"] for rung in state["ladder"]] == list(NAMES) and state["ladder"][0]["gain"] is None
    assert RunResult.from_dict(state) == result
    del state["ladder"]  # a run of one model has none
    assert RunResult.from_dict(state) == replace(result, ladder=())
    assert "ladder" not in replace(result, ladder=()).to_dict()
