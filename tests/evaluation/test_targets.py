"""The table of targets: each row is the decision of its target, and the cost of a pick is that of a simulation."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import logit
from scipy.stats import norm
from support.binary_scores import CLASSES, decision_options

from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.evaluation.targets import cost_of_picking, target_rows
from seqclf.report.threshold import target_blocks


def rows_of(logits, labels, groups=None, classes=CLASSES, positive="yes", basis="held_out", **options):
    settings = decision_options({"confidence": None, **options})
    decision = choose_decision(settings, logits, labels, classes, positive, groups, "group", basis)
    names = None if groups is None else pa.array(np.asarray(groups).astype(str))
    outputs = ScoredRows(logits, labels, labels, labels < 0, groups, names)
    return list(target_rows(settings, decision, outputs, classes, basis)), decision


def draw(generator, rows, share, groups=None, correlation=0.0, distance=1.5):
    """Labels, and the scores of rows, whose groups share an effect."""
    labels = (generator.random(rows) < share).astype(int)
    effect = generator.standard_normal((2, rows))[labels, np.zeros(rows, int) if groups is None else groups]
    noise = np.sqrt(correlation) * effect + np.sqrt(1 - correlation) * generator.standard_normal(rows)
    return labels, labels * distance + noise


@pytest.mark.parametrize(
    ("rule", "target", "groups", "confidence"),
    [
        ("min_recall", 0.8, None, None),
        ("min_recall", 0.73, 60, 0.9),
        ("min_precision", 0.5, None, None),
        ("max_alerts", 0.2, None, 0.95),
    ],
)
def test_each_row_is_the_decision_of_its_target(rule, target, groups, confidence):
    group = None if groups is None else np.repeat(np.arange(groups), 10)
    labels, scores = draw(np.random.default_rng(0), 600, 0.2, group, 0.5)
    logits = np.stack([-scores, scores], axis=1) / 2
    rows, decision = rows_of(logits, labels, group, **{rule: target}, confidence=confidence)
    assert [row.threshold for row in rows if row.asked] == [decision.threshold]
    assert {row.statement for row in rows} >= {"average", "sure"} and len(rows) > 8
    for row in rows:
        _, other = rows_of(logits, labels, group, **{rule: row.target}, confidence=row.confidence)
        (guarantee,), is_alert = other.targets, other.choose(logits) == 1
        assert (other.threshold, guarantee.statement, guarantee.backed) == (row.threshold, row.statement, row.backed)
        assert row.alerts_per_1000 == pytest.approx(1000 * is_alert.mean())
        assert row.recall == pytest.approx(is_alert[labels == 1].mean())


def test_targets_that_few_rows_do_not_back_stand_where_the_rows_reach_them():
    scores = np.random.default_rng(0).permutation(24) / 24
    labels = (scores > 0.8).astype(int)
    rows, decision = rows_of(np.stack([0 * scores, logit(scores * 0.98 + 0.01)], axis=1), labels, min_recall=0.97)
    (guarantee,) = decision.targets
    assert (guarantee.statement, guarantee.backed, guarantee.needed) == ("rows", False, 33)
    assert all(row.recall >= row.target for row in rows) and {row.statement for row in rows} > {"rows"}


def test_each_label_of_several_classes_has_a_table():
    labels = np.arange(300) % 3
    logits = 3.0 * np.eye(3)[labels] + np.random.default_rng(0).standard_normal((300, 3))
    of_classes = {"classes": list("abc"), "positive": None}
    rows, decision = rows_of(logits, labels, **of_classes, min_recall={"a": 0.8, "b": 0.9})
    assert {row.label for row in rows} == {"a", "b"} and all(target.approximate for target in decision.targets)
    for row in rows:
        targets = {"a": 0.8, "b": 0.9, row.label: row.target}
        _, other = rows_of(logits, labels, **of_classes, min_recall=targets, confidence=row.confidence)
        is_alert, index = other.choose(logits), "abc".index(row.label)
        assert row.alerts_per_1000 == pytest.approx(1000 * (is_alert == index).mean())


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_threshold_of_each_of_several_classes_is_that_beside_a_class_without_a_target(index):
    offsets = [0.0, 0.0, 0.0]
    offsets[index] = 1.5
    decision, share = (
        Decision(rule="min_recall", offsets=tuple(offsets)),
        Decision().with_margin("x", ["a", "b"], -1.5, "b"),
    )
    assert decision.threshold_of(index) == pytest.approx(share.threshold)


@pytest.mark.parametrize(("rule", "target"), [("min_recall", 0.8), ("max_alerts", 0.2)])
def test_the_cost_of_a_pick_is_that_of_new_samples(rule, target):
    generator, shortfalls, missed = np.random.default_rng(0), [], []
    for _ in range(200):
        scores = generator.normal(size=160)
        labels = (np.arange(160) < 80).astype(int)  # the scores say nothing, so that no threshold is lowered for free
        rows, decision = rows_of(np.stack([-scores, scores], axis=1) / 2, labels, **{rule: target})
        found = [norm.sf(logit(row.threshold)) for row in rows]
        short = [
            (row.target - value) * (-1 if rule == "max_alerts" else 1) for row, value in zip(rows, found, strict=True)
        ]
        shortfalls.append(max(0, *(lost for row, lost in zip(rows, short, strict=True) if row.statement == "average")))
        missed.append(any(lost > 0 for row, lost in zip(rows, short, strict=True) if row.statement == "sure"))
    shortfall, risk = cost_of_picking(rows, decision.targets[0])
    assert np.mean(shortfalls) == pytest.approx(shortfall, abs=4 * np.std(shortfalls) / 200**0.5 + 0.005)
    assert 0.03 < risk < 0.5 and abs(np.mean(missed) - risk) < 3 * (risk / 200) ** 0.5 + 0.02


def test_costs_have_no_table_and_rows_that_chose_the_model_back_nothing():
    labels, scores = draw(np.random.default_rng(0), 400, 0.3)
    logits = np.stack([-scores, scores], axis=1)
    assert rows_of(logits, labels, cost=20)[0] == rows_of(logits, labels)[0] == []
    rows, _ = rows_of(logits, labels, min_recall=0.6, basis="chosen")
    assert rows and not any(row.backed for row in rows)


def test_the_report_marks_the_configured_target():
    labels, scores = draw(np.random.default_rng(0), 2000, 0.2)
    logits = np.stack([-scores, scores], axis=1)
    rows, decision = rows_of(logits, labels, min_recall=0.7)
    outputs = ScoredRows(logits, labels, labels + 1, labels < 0)
    metrics = judge_split(outputs, CLASSES, "yes", decision, with_intervals=False)
    result = RunResult(splits={"test": metrics}, decision=decision, targets=tuple(rows))
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    table = target_blocks(result)[0]
    assert len(table.rows) == len({row.target for row in rows}) > 8 and table.rows[table.strong][0] == "0.7 (this run)"
