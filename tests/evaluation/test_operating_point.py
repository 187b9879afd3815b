"""The operating point that ships is judged too: its alerts, beside those of an order-blind model and of random rows."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import ClassificationMetrics
from seqclf.evaluation.recommendation import Training, next_step
from seqclf.evaluation.results import BaselineMetrics, SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.runs.evaluate import _with_baseline_alarms

CLASSES = ["no", "fraud"]
TARGET = Guarantee(rule="min_recall", label="fraud", target=0.73, confidence=0.95, backed=True, rows=16, needed=None)


def frauds(generator, rows, positives, found, model_distance, baseline_distance):
    """Labels, and logits of two models. The last `1 - found` of the positives look like other rows to the model."""
    labels = (np.arange(rows) < positives).astype(int)
    model = generator.standard_normal(rows) + labels * model_distance
    model[int(found * positives) : positives] -= model_distance
    baseline = generator.standard_normal(rows) + labels * baseline_distance
    return labels, *(np.stack([-score, score], axis=1) for score in (model, baseline))


def judged(labels, model, baseline, margin, rule="min_recall", with_baseline=True):
    """Result of a run, and its next step, with a threshold at the logit margin `margin`."""
    decision = Decision() if rule == "argmax" else Decision().with_margin(rule, CLASSES, margin, "fraud")
    if rule not in ("argmax", "threshold"):
        decision = replace(decision, targets=(replace(TARGET, rule=rule),))
    outputs = SplitOutputs(model, labels, np.full(len(labels), 5), np.zeros(len(labels), bool))
    metrics = evaluate_split(outputs, CLASSES, "fraud", decision, with_intervals=True)
    compared = compare_models(
        labels, RowPredictions(decision.choose(model), model), RowPredictions(baseline.argmax(axis=1), baseline), 1
    )
    fields = {field.name: getattr(metrics, field.name) for field in dataclasses.fields(ClassificationMetrics)}
    order_blind = BaselineMetrics(**fields, model="forest", split="test", comparison=compared)
    result = RunResult(
        splits={"test": metrics}, decision=decision, baseline=order_blind if with_baseline else None, no_baseline="none"
    )
    result = _with_baseline_alarms(result, Training())
    return result, next_step(result.metrics, "test", decision, result.baseline)


def test_a_better_ranking_with_a_worthless_threshold_is_not_to_be_used():
    # The lowest of the held-out frauds sets the threshold, so that a fifth of all rows are alerts.
    labels, model, baseline = frauds(np.random.default_rng(0), 900, 36, 0.9, 7.0, 2.0)
    result, step = judged(labels, model, baseline, margin=2 * 0.8)
    ranking, recall, _ = result.baseline.comparison
    positive = result.metrics.positive
    assert ranking.is_better and positive.precision < 0.25, (positive, recall)
    assert not recall.is_better and positive.alerts > 80
    assert result.not_yet and not step.startswith("use it")
