"""Guarantees of decision thresholds: they hold on new data, and too few rows back none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, hypergeom
from support.binary_scores import sample_scores

from seqclf.evaluation.decisions.thresholds import (
    alerts_hold,
    precision_holds,
    recall_holds,
    threshold_for_alerts,
    threshold_for_precision,
    threshold_for_recall,
    threshold_of_least_cost,
)


def share_of_guarantees_kept(find_threshold, is_kept, target, **sample_options):
    """Share of 600 simulations in which the threshold of held-out rows keeps its guarantee on new rows."""
    generator = np.random.default_rng(0)
    kept = []
    for _ in range(600):
        threshold = find_threshold(*sample_scores(generator, **sample_options), target, 0.9)
        assert threshold.backed
        new_scores, is_positive = sample_scores(generator, **sample_options)
        kept.append(is_kept(new_scores >= threshold.value, is_positive))
    return np.mean(kept)


@pytest.mark.parametrize("decimals", [None, 1])
def test_the_recall_guarantee_holds_on_new_data_with_its_confidence(decimals):
    share = share_of_guarantees_kept(
        threshold_for_recall,
        lambda is_alert, is_positive: is_alert[is_positive].mean() >= 0.7,
        0.7,
        decimals=decimals,
    )
    assert share > 0.87
    assert decimals or share < 0.95, "more would mean needless alerts"


@pytest.mark.parametrize("decimals", [None, 1])
def test_the_guarantee_on_the_share_of_alerts_holds_on_new_data(decimals):
    share = share_of_guarantees_kept(
        threshold_for_alerts, lambda is_alert, _: is_alert.mean() <= 0.1, 0.1, decimals=decimals
    )
    assert share > 0.88
    assert decimals or share < 0.95


def test_the_precision_guarantee_holds_on_new_data():
    share = share_of_guarantees_kept(
        threshold_for_precision,
        lambda is_alert, is_positive: is_positive[is_alert].mean() >= 0.5,
        0.5,
        rows=3000,
        positive_share=0.2,
    )
    assert share > 0.9


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("target", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("rows", [7, 20, 59, 100, 130])
def test_a_guarantee_holds_for_every_larger_number_of_new_rows(rows, target, confidence):
    """Compares the shortcut of `_hardest_count` with every number of new rows, by the exact distributions.

    A guarantee for equally many new rows only would be too weak: a recall of 0.8 with confidence 0.95 would then need
    89 hits of 100, which keep the recall in only 94.7 % of the samples of 104 rows.
    """
    new_rows = np.arange(rows, rows + int(4 / (1 - target)) + 50)
    hits_needed = np.ceil(target * new_rows - 1e-9).astype(int)
    allowed = new_rows - hits_needed

    hits = next((k for k in range(rows + 1) if recall_holds(k, rows, target, confidence)), None)
    if hits is not None:
        assert betabinom.sf(hits_needed - 1, new_rows, hits, rows - hits + 1).min() >= confidence - 1e-9
        with_one_hit_less = betabinom.sf(hits_needed - 1, new_rows, hits - 1, rows - hits + 2)
        in_the_population = beta.sf(target, hits - 1, rows - hits + 2)
        assert min(with_one_hit_less.min(), in_the_population) < confidence, "one hit less would do"

    alerts = max((k for k in range(1, rows + 1) if alerts_hold(k, rows, 1 - target, confidence)), default=None)
    if alerts is not None:
        assert betabinom.sf(allowed, new_rows, alerts, rows - alerts + 1).max() <= 1 - confidence + 1e-9

    right_alerts = next((k for k in range(rows + 1) if precision_holds(k, rows, target, confidence)), None)
    if right_alerts is not None:
        risk = hypergeom.cdf(hits_needed - 1, rows + new_rows, right_alerts + hits_needed - 1, new_rows)
        assert risk.max() <= (1 - confidence) / 20 + 1e-9


@given(st.integers(0, 10**6), st.sampled_from([1, 5, 20]))
def test_no_threshold_has_a_lower_cost(seed, cost):
    scores, is_positive = sample_scores(np.random.default_rng(seed), rows=40, positive_share=0.3, decimals=1)

    def total_cost(threshold):
        missed, false_alerts = is_positive & (scores < threshold), ~is_positive & (scores >= threshold)
        return cost * missed.sum() + false_alerts.sum()

    lowest = min(total_cost(threshold) for threshold in [*np.unique(scores), 99.0])
    assert total_cost(threshold_of_least_cost(scores, is_positive, cost, 0.9).value) == lowest


def test_too_few_rows_back_no_guarantee_and_the_number_needed_is_reported():
    generator = np.random.default_rng(0)
    few = threshold_for_recall(generator.random(6), np.ones(6, bool), 0.9, 0.95)
    assert not few.backed
    assert few.rows == 6
    all_positive = np.ones(few.needed, bool)
    assert threshold_for_recall(generator.random(few.needed), all_positive, 0.9, 0.95).backed
    assert not threshold_for_recall(generator.random(few.needed - 1), all_positive[1:], 0.9, 0.95).backed


def test_without_positive_rows_no_guarantee_is_backed():
    for find_threshold in (threshold_for_recall, threshold_for_precision):
        threshold = find_threshold(np.linspace(0, 1, 9), np.zeros(9, bool), 0.5, 0.9)
        assert not threshold.backed
        assert threshold.rows == 0


@pytest.mark.parametrize("find_threshold", [threshold_for_recall, threshold_for_alerts, threshold_for_precision])
@pytest.mark.parametrize("shift", [-2e-5, 2e-5])
def test_rounding_errors_of_another_runtime_change_no_decision(find_threshold, shift):
    """Many equal sequences lie at the threshold, and their scores differ slightly on another machine."""
    generator = np.random.default_rng(0)
    scores = np.repeat([3.0, 2.0, 1.0, 0.0], [50, 100, 300, 550])
    is_positive = np.repeat([True, False, True, False], [45, 105, 20, 830])
    target = 0.1 if find_threshold is threshold_for_alerts else 0.5
    threshold = find_threshold(scores, is_positive, target, 0.9).value
    rounded_otherwise = scores + shift * generator.random(1000)
    np.testing.assert_array_equal(scores >= threshold, rounded_otherwise >= threshold)


def test_recall_beyond_the_target_is_taken_where_it_costs_no_alert():
    scores = np.repeat([9.0, 5.0, 1.0], [20, 100, 880])
    is_positive = np.repeat([False, True, False], [20, 100, 880])
    assert 1.0 < threshold_for_recall(scores, is_positive, 0.5, 0.9).value < 5.0
    assert threshold_for_recall(scores[is_positive], is_positive[is_positive], 0.5, 0.9).value < 5.0
