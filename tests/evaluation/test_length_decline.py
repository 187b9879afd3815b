"""A recall that falls with the length is found where it does, and hardly ever where it does not."""

import numpy as np
import pytest

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.length_decline import find_length_decline
from seqclf.evaluation.results import SplitMetrics, SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.slices import length_buckets
from seqclf.report.verdict import verdict_of


def draw(generator, rows, recall_of):
    """Draw labels, predictions and lengths. `recall_of(labels, lengths)`: (N,) chances of a hit."""
    labels, lengths = generator.integers(0, 3, rows), generator.integers(5, 60, rows)
    hit = generator.random(rows) < recall_of(labels, lengths)
    return labels, np.where(hit, labels, (labels + 1) % 3), lengths


def decline_of(labels, predicted, lengths, only=None):
    return find_length_decline(labels, predicted, lengths, length_buckets(lengths), only)


@pytest.mark.parametrize("only", [None, 1])
def test_long_sequences_that_are_harder_are_named(only):
    labels, predicted, lengths = draw(
        np.random.default_rng(0), 2000, lambda labels, lengths: np.where(lengths >= 50, 0.7, 0.95)
    )
    decline = decline_of(labels, predicted, lengths, only)
    assert 45 <= decline.low <= 52 and decline.high == 59
    assert decline.rows == np.count_nonzero(lengths >= decline.low)
    assert decline.recall < 0.85 < 0.9 < decline.recall_of_shorter
    assert decline.difference_low < decline.difference < decline.difference_high < 0


@pytest.mark.parametrize("rows", [60, 300, 1000])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99])
def test_equal_recalls_are_called_a_decline_in_at_most_five_of_a_hundred_draws(rows, recall):
    generator = np.random.default_rng(rows)
    draws = 400
    found = sum(
        decline_of(*draw(generator, rows, lambda labels, lengths: np.full(len(labels), recall))) is not None
        for _ in range(draws)
    )
    assert found <= 0.05 * draws + 2 * np.sqrt(0.05 * 0.95 * draws)


def test_a_hard_class_that_is_long_is_no_decline():
    """Class 2 has a recall of 0.5 at all lengths and is twice as long."""
    found = 0
    for seed in range(200):
        labels, predicted, lengths = draw(
            np.random.default_rng(seed), 600, lambda labels, lengths: np.where(labels == 2, 0.5, 0.95)
        )
        found += decline_of(labels, predicted, lengths * (1 + (labels == 2))) is not None
    assert found <= 16


def test_sequences_of_one_length_and_of_long_ones_with_a_higher_recall_are_no_decline():
    labels, predicted, lengths = draw(
        np.random.default_rng(0), 1000, lambda labels, lengths: np.where(lengths > 40, 0.99, 0.6)
    )
    assert decline_of(labels, predicted, lengths) is None
    assert decline_of(labels, predicted, np.full(1000, 7)) is None


def test_verdict_and_metrics_name_the_range_and_its_rows():
    labels, predicted, lengths = draw(
        np.random.default_rng(1), 2000, lambda labels, lengths: np.where(lengths >= 50, 0.7, 0.95)
    )
    outputs = SplitOutputs(5.0 * np.eye(3)[predicted], labels, lengths, np.zeros(2000, bool))
    metrics = evaluate_split(outputs, ["a", "b", "c"], None, Decision(), with_intervals=True)
    decline = metrics.to_dict()["length_decline"]
    sentence = verdict_of(RunResult(splits={"test": metrics}, decision=Decision())).lengths
    assert str(decline["rows"]) in sentence and f"{decline['low']} to {decline['high']} tokens" in sentence
    assert SplitMetrics.from_dict(metrics.to_dict()).length_decline == metrics.length_decline
    level = evaluate_split(
        outputs._replace(lengths=np.full(2000, 3)), ["a", "b", "c"], None, Decision(), with_intervals=True
    )
    assert "length_decline" not in level.to_dict()
    assert verdict_of(RunResult(splits={"test": level}, decision=Decision())).lengths is None


def share_of_false_declines(ignore_groups, repeats=200):
    """Share of draws in which a range is named, where groups differ in their lengths and in their recall by chance."""
    generator, named = np.random.default_rng(0), 0
    group = np.repeat(np.arange(30), 30)
    for _ in range(repeats):
        lengths = (generator.integers(5, 60, 30)[group] + generator.integers(0, 5, 900)).astype(np.int64)
        labels = generator.integers(0, 2, 900)
        right = generator.random(900) < generator.beta(2, 0.5, 30)[group]
        predicted = np.where(right, labels, 1 - labels)
        groups = None if ignore_groups else group
        named += find_length_decline(labels, predicted, lengths, length_buckets(lengths), group=groups) is not None
    return named / repeats


def test_groups_that_differ_in_length_show_no_decline():
    assert share_of_false_declines(ignore_groups=False) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)
    assert share_of_false_declines(ignore_groups=True) > 0.3, "else the simulation shows nothing"
