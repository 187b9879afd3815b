"""The table of targets: all backed targets hold together on new data, and the configured one by itself."""

import functools
import json

import numpy as np
import pytest
from scipy.special import logit

from seqclf.config.options import parse_options
from seqclf.evaluation.decisions import thresholds
from seqclf.evaluation.decisions.choose_decision import choose_decision
from seqclf.evaluation.decisions.target_table import target_rows
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.results import SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.report.score_table import target_blocks

CLASSES = ["no", "yes"]
KEYS = dict.fromkeys(("min_recall", "min_precision", "max_alerts", "cost"))
KEYS |= {"confidence": 0.95, "holdout": 0.5, "provisional": False, "calibrate": False}


@pytest.fixture
def cached(monkeypatch):
    """Ranks depend on counts alone, and the simulations repeat the counts."""
    for name in ("recall_holds", "alerts_hold", "precision_holds"):
        monkeypatch.setattr(thresholds, name, functools.cache(getattr(thresholds, name)))
    monkeypatch.setattr(thresholds, "_rows_needed", lambda holds: None)


def rows_of(logits, labels, groups=None, classes=CLASSES, positive="yes", **options):
    outputs = SplitOutputs(logits, labels, labels, labels < 0, groups)
    decision = choose_decision(
        parse_options(DecisionOptions, {**KEYS, **options}, "decision"), logits, labels, classes, positive, groups
    )
    return list(target_rows(decision, outputs, classes)), decision


def draw(generator, rows, share, groups=None, correlation=0.0, distance=1.5):
    """Labels, and the scores of rows, whose groups share an effect."""
    labels = (generator.random(rows) < share).astype(int)
    effect = generator.standard_normal((2, rows))[labels, np.zeros(rows, int) if groups is None else groups]
    noise = np.sqrt(correlation) * effect + np.sqrt(1 - correlation) * generator.standard_normal(rows)
    return labels, labels * distance + noise


def value_on(rule, labels, scores, threshold):
    """The value on new rows that a target is about, and the number of rows that are counted."""
    is_alert = scores > threshold
    counted, hits = {
        "min_recall": (labels == 1, is_alert),
        "min_precision": (is_alert, labels == 1),
        "max_alerts": (labels >= 0, is_alert),
    }[rule]
    return (counted & hits).sum() / max(1, counted.sum()), counted.sum()


def broken(rule, target, rows, share, repeats, groups=None, correlation=0.0, seed=0):
    """Share of draws that break any row on new data, share that break the configured one, and mean number of rows."""
    generator, wrong = np.random.default_rng(seed), np.zeros(3)
    for _ in range(repeats):
        group = None if groups is None else np.repeat(np.arange(groups), rows // groups)
        labels, scores = draw(generator, rows, share, group, correlation)
        table, _ = rows_of(np.stack([-scores, scores], axis=1) / 2, labels, group, **{rule: target})
        new = draw(generator, rows, share)  # one row of each of as many new groups as there were rows
        of_row = []
        for row in table:
            at = logit(row.threshold)
            value, counted = value_on(rule, *new, at)
            enough = counted >= value_on(rule, labels, scores, at)[1]
            misses = value > row.target if rule == "max_alerts" else value < row.target
            of_row.append(row.backed and enough and misses)
        asked = np.array([row.asked for row in table])
        wrong += [any(np.array(of_row)[~asked]), any(np.array(of_row)[asked]), sum(row.backed for row in table)]
    return wrong / repeats


@pytest.mark.parametrize(
    ("rule", "target", "rows", "share", "groups"),
    [
        ("min_recall", 0.8, 400, 0.1, None),
        ("min_recall", 0.7, 600, 0.2, 60),
        ("min_precision", 0.5, 300, 0.3, None),
        ("max_alerts", 0.2, 300, 0.1, None),
    ],
)
def test_all_backed_targets_hold_together(cached, rule, target, rows, share, groups):
    repeats = 150
    anything, asked, backed = broken(rule, target, rows, share, repeats, groups, 0.0 if groups is None else 0.7)
    most = 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / repeats)
    assert anything <= most and asked <= most and backed > 2


def test_few_positives_show_what_each_of_the_lowest_costs():
    """Of 16 held-out positives, the lowest sets the threshold, and the third and the fourth have far fewer alerts."""
    lowest = {0: 0.0018, 1: 0.01, 2: 0.059, 3: 0.948}
    positives = np.array([lowest.get(number, 0.96 + number / 1000) for number in range(16)])
    others = np.r_[np.linspace(0.002, 0.5, 100), np.linspace(1e-5, 1e-4, 284)]
    score, labels = logit(np.r_[positives, others]), np.r_[np.ones(16, int), np.zeros(384, int)]
    rows, decision = rows_of(np.stack([0 * score, score], axis=1), labels, min_recall=0.73)
    asked = next(row for row in rows if row.asked)
    assert (asked.target, asked.backed, asked.recall) == (0.73, True, 1.0)
    assert asked.threshold == pytest.approx(decision.threshold) and asked.precision == pytest.approx(16 / 116)
    assert asked.alerts_per_1000 == pytest.approx(1000 * 116 / 400) and asked.confidence == 0.95
    by_recall = {row.recall: row for row in rows if row.backed and not row.asked}
    assert {14 / 16, 13 / 16} <= by_recall.keys()
    assert by_recall[13 / 16].threshold > 0.5 and by_recall[13 / 16].precision == 1
    for row in (by_recall[14 / 16], by_recall[13 / 16]):
        again, _ = rows_of(
            np.stack([0 * score, score], axis=1), labels, min_recall=row.target, confidence=row.confidence
        )
        assert next(one for one in again if one.asked).threshold == row.threshold, "a run with this target has it"


@pytest.mark.parametrize("rule", ["min_recall", "min_precision", "max_alerts"])
def test_targets_that_few_rows_do_not_back_stand_where_the_rows_reach_them(rule):
    scores = np.random.default_rng(0).permutation(24) / 24
    labels = ((scores > 0.8) | (scores < 0.03)).astype(int)
    rows, _ = rows_of(np.stack([0 * scores, logit(scores * 0.98 + 0.01)], axis=1), labels, **{rule: 0.97})
    others = [row for row in rows if not row.asked and not row.backed]
    assert others and len({row.threshold for row in others}) == len(others)
    for row in others:
        reached = {"min_recall": row.recall, "min_precision": row.precision, "max_alerts": -row.alerts_per_1000 / 1000}
        assert reached[rule] >= (-row.target if rule == "max_alerts" else row.target) - 1e-9 or row.target > 0.95


def test_each_label_of_several_classes_has_a_table():
    labels = np.arange(900) % 3
    logits = 3.0 * np.eye(3)[labels] + np.random.default_rng(0).standard_normal((900, 3))
    rows, decision = rows_of(logits, labels, classes=list("abc"), positive=None, min_recall={"a": 0.8, "b": 0.9})
    assert {row.label for row in rows} == {"a", "b"}
    for label, place in (("a", 0), ("b", 1)):
        asked = next(row for row in rows if row.label == label and row.asked)
        is_alert = decision.choose(logits) == place
        assert asked.alerts_per_1000 == pytest.approx(1000 * is_alert.mean())
        assert asked.recall == pytest.approx(is_alert[labels == place].mean())


def test_costs_have_no_table_and_rows_that_chose_the_model_back_nothing():
    labels, scores = draw(np.random.default_rng(0), 400, 0.3)
    logits = np.stack([-scores, scores], axis=1)
    assert rows_of(logits, labels, cost=20)[0] == rows_of(logits, labels)[0] == []
    rows, _ = rows_of(logits, labels, min_recall=0.6, provisional=True)
    assert rows and not any(row.backed for row in rows)


def test_the_report_marks_the_configured_target():
    labels, scores = draw(np.random.default_rng(0), 2000, 0.2)
    logits = np.stack([-scores, scores], axis=1)
    rows, decision = rows_of(logits, labels, min_recall=0.7)
    outputs = SplitOutputs(logits, labels, labels + 1, labels < 0)
    metrics = evaluate_split(outputs, CLASSES, "yes", decision, with_intervals=False)
    result = RunResult(splits={"test": metrics}, decision=decision, targets=tuple(rows))
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    table = target_blocks(result)[0]
    assert len(table.rows) == len(rows) > 8 and table.rows[table.strong][0] == "0.7 (this run)"
