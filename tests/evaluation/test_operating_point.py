"""The operating point that ships is judged too: its alerts, beside those of an order-blind model and of random rows."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from support.grouped_rows import equal_alert_errors

from seqclf.evaluation import intervals
from seqclf.evaluation.alarms import WEAK_THRESHOLD
from seqclf.evaluation.baseline_alarms import baseline_alarms
from seqclf.evaluation.comparison import EQUAL_ALERTS, RowPredictions, compare_models
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.judge import _with_baseline_alarms
from seqclf.evaluation.metrics import Metrics
from seqclf.evaluation.next_step import next_step
from seqclf.evaluation.result import RANDOM_ALERTS, REASONS, Facts, ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split, unproven_labels

CLASSES = ["no", "fraud"]
SETTINGS = {"data": {"split": {"by": "random"}}, "trainer": {"max_epochs": 30}, "monitor": None}
TARGET = Guarantee(
    rule="min_recall",
    label="fraud",
    target=0.73,
    confidence=0.95,
    statement="sure",
    beyond_lowest=17,
    backed=True,
    rows=16,
    needed=None,
)


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
    outputs = ScoredRows(model, labels, np.full(len(labels), 5), np.zeros(len(labels), bool))
    metrics = judge_split(outputs, CLASSES, "fraud", decision, with_intervals=True)
    compared = compare_models(
        labels, RowPredictions(decision.choose(model), model), RowPredictions(baseline.argmax(axis=1), baseline), 1
    )
    fields = {field.name: getattr(metrics, field.name) for field in dataclasses.fields(Metrics)}
    order_blind = ModelResult(**fields, name="order-blind", kind="forest", comparisons=compared)
    result = RunResult(
        splits={"test": metrics}, decision=decision, baseline=order_blind if with_baseline else None, no_baseline="none"
    )
    result = _with_baseline_alarms(result)
    return result, next_step(result, Facts(settings=SETTINGS, epochs=30))


def test_a_better_ranking_with_a_worthless_threshold_is_not_to_be_used():
    # The lowest of the held-out frauds sets the threshold, so that a fifth of all rows are alerts.
    labels, model, baseline = frauds(np.random.default_rng(0), 900, 36, 0.9, 7.0, 2.0)
    result, step = judged(labels, model, baseline, margin=2 * 0.8)
    ranking, recall, _ = result.baseline.comparisons
    positive = result.metrics.positive
    assert ranking.is_better and positive.precision < 0.25, (positive, recall)
    assert not recall.is_better and positive.alerts > 80
    assert result.metrics.alarms[0].kind == WEAK_THRESHOLD and result.not_yet[0] == REASONS[WEAK_THRESHOLD]
    assert step.startswith("get more rows of fraud than 16 to set the threshold")


@pytest.mark.parametrize("rule", ["min_recall", "min_precision", "max_alerts", "cost", "threshold"])
def test_a_useful_threshold_is_to_be_used_and_argmax_is_judged_by_its_ranking(rule):
    rows = frauds(np.random.default_rng(0), 2000, 200, 0.95, 5.0, 1.0)
    result, step = judged(*rows, margin=4.0, rule=rule)
    assert result.baseline.comparisons[1].is_better and result.not_yet == [] and step.startswith("use it")
    worthless = frauds(np.random.default_rng(0), 900, 36, 0.9, 7.0, 2.0)
    for_rule, _ = judged(*worthless, margin=1.6, rule=rule)
    assert for_rule.not_yet and judged(*worthless, margin=1.6, rule="argmax")[0].not_yet == []


def test_two_models_whose_alerts_are_nearly_all_right_are_too_easy_to_tell_apart():
    rows = frauds(np.random.default_rng(0), 400, 100, 1.0, 9.0, 9.0)
    result, _ = judged(*rows, margin=9.0)
    recall = result.baseline.comparisons[1]
    assert recall.is_too_easy and not recall.is_better and result.not_yet == []
    many, _ = judged(*rows, margin=-2.0)  # every model finds all rows with so many alerts
    recall = many.baseline.comparisons[1]
    assert min(recall.model, recall.baseline) > 0.95 and not recall.is_too_easy and many.not_yet


@pytest.mark.parametrize("with_baseline", [True, False])
@pytest.mark.parametrize("margin", [-100.0, 100.0])
def test_alerts_that_are_not_shown_to_be_better_than_random_ones_speak_against_it(with_baseline, margin):
    """Every row is an alert, or none is."""
    rows = frauds(np.random.default_rng(0), 900, 36, 0.9, 7.0, 2.0)
    result, step = judged(*rows, margin=margin, rule="threshold", with_baseline=with_baseline)
    assert unproven_labels(result.decision, result.metrics) == ["fraud"]
    assert result.not_yet[0] == RANDOM_ALERTS and not step.startswith("use it")


def test_each_label_of_several_classes_is_compared_at_its_threshold():
    generator = np.random.default_rng(0)
    labels = np.arange(600) % 3
    model, baseline = (d * np.eye(3)[labels] + generator.standard_normal((600, 3)) for d in (4.0, 0.5))
    models = [RowPredictions(scores.argmax(axis=1), scores) for scores in (model, baseline)]
    entries = compare_models(labels, *models, targets={"a": 0, "c": 2})
    at_threshold = {entry.label: entry for entry in entries if entry.metric == EQUAL_ALERTS}
    assert at_threshold.keys() == {"a", "c"} and all(entry.is_better for entry in at_threshold.values())
    for label, code in (("a", 0), ("c", 2)):
        of_label = at_threshold[label]
        assert of_label.model == pytest.approx((models[0].predicted == code)[labels == code].mean())
        highest = np.argsort(-baseline[:, code])[: (models[0].predicted == code).sum()]
        assert of_label.baseline == pytest.approx((labels[highest] == code).sum() / (labels == code).sum())
    judged_at = baseline_alarms([entries[0], replace(at_threshold["a"], low=-0.1)], Decision(), 600, "rows")
    assert judged_at == [], "argmax is judged by its ranking alone"
    decision = Decision(rule="min_recall", offsets=(0.0, 0.0, 0.0))
    (alarm,) = baseline_alarms([entries[0], replace(at_threshold["a"], low=-0.1)], decision, 600, "rows")
    assert alarm.kind == WEAK_THRESHOLD


@pytest.mark.parametrize(
    ("groups", "layout", "correlation", "share", "recall"),
    [
        (None, 450, 0.0, 0.05, 0.8),
        (20, 20, 0.7, 0.5, 0.8),
        pytest.param(50, 20, 0.3, 0.5, 0.95, marks=pytest.mark.slow),
        (200, 5, 0.3, 0.05, 0.8),
    ],
)
def test_one_of_two_equal_models_is_rarely_said_to_find_more(monkeypatch, groups, layout, correlation, share, recall):
    monkeypatch.setattr(intervals, "DRAWS", 200)
    errors, seen = equal_alert_errors(groups, layout, correlation, share, recall, 80)
    assert seen > 40 and errors <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / seen)
