"""Guarantees of decision thresholds: they hold on new data, and too few rows back none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, hypergeom, norm
from support.binary_scores import sample_scores

from seqclf.evaluation.thresholds import (
    alerts_hold,
    find_threshold,
    precision_holds,
    recall_holds,
    rows_beyond_lowest,
    threshold_of_least_cost,
)

RULES = ("min_recall", "max_alerts", "min_precision")


def share_of_guarantees_kept(rule, is_kept, target, **sample_options):
    """Share of 600 simulations in which the threshold of held-out rows keeps its guarantee on new rows."""
    generator = np.random.default_rng(0)
    kept = []
    for _ in range(600):
        threshold = find_threshold(rule, *sample_scores(generator, **sample_options), target, 0.9)
        assert threshold.statement == "sure"
        new_scores, is_positive = sample_scores(generator, **sample_options)
        kept.append(is_kept(new_scores >= threshold.value, is_positive))
    return np.mean(kept)


@pytest.mark.parametrize("decimals", [None, 1])
def test_the_recall_guarantee_holds_on_new_data_with_its_confidence(decimals):
    share = share_of_guarantees_kept(
        "min_recall",
        lambda is_alert, is_positive: is_alert[is_positive].mean() >= 0.7,
        0.7,
        decimals=decimals,
    )
    assert share > 0.87
    assert decimals or share < 0.95, "more would mean needless alerts"


@pytest.mark.parametrize("decimals", [None, 1])
def test_the_guarantee_on_the_share_of_alerts_holds_on_new_data(decimals):
    share = share_of_guarantees_kept("max_alerts", lambda is_alert, _: is_alert.mean() <= 0.1, 0.1, decimals=decimals)
    assert share > 0.88
    assert decimals or share < 0.95


def test_the_precision_guarantee_holds_on_new_data():
    share = share_of_guarantees_kept(
        "min_precision",
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
    assert total_cost(threshold_of_least_cost(scores, is_positive, cost).value) == lowest


@pytest.mark.parametrize(("confidence", "asked", "weaker"), [(0.95, "sure", "average"), (None, "average", "rows")])
def test_too_few_rows_back_the_next_weaker_statement_and_the_number_needed_is_reported(confidence, asked, weaker):
    scores = np.random.default_rng(0).random(99)
    needed = {0.95: 40, None: 9}[confidence]
    for count, statement in ((needed, asked), (needed - 1, weaker)):
        threshold = find_threshold("min_recall", scores[:count], np.ones(count, bool), 0.9, confidence)
        assert (threshold.statement, threshold.rows) == (statement, count)
        assert threshold.needed == (None if statement == asked else needed)


def test_the_lowest_score_sets_the_threshold_of_a_rank_alone_that_is_the_number_of_rows():
    beyond = [rows_beyond_lowest("average", 0.8, count, None) for count in range(3, 10)]
    assert beyond == [None, *[9] * 5, None]
    assert rows_beyond_lowest("sure", 0.8, 20, 0.95) == next(
        n for n in range(20, 99) if recall_holds(n - 1, n, 0.8, 0.95)
    )


@pytest.mark.parametrize("rule", ["min_recall", "min_precision"])
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_without_positive_rows_the_most_probable_label_is_predicted(rule, confidence):
    threshold = find_threshold(rule, np.linspace(0, 1, 9), np.zeros(9, bool), 0.5, confidence)
    assert (threshold.value, threshold.statement, threshold.rows) == (0.0, "rows", 0)


def wrongly_labelled(generator, rows, positives=None):
    """Scores and labels of rows, 4 % positive, whose scores lie four deviations higher; 5 % of the labels are wrong."""
    is_labelled = generator.random(rows) < 0.04 if positives is None else np.arange(rows) < positives
    return generator.normal(size=rows) + 4 * (is_labelled & (generator.random(rows) < 0.95)), is_labelled


@pytest.mark.parametrize("positives", [7, 12, 25, 61])
def test_a_recall_on_average_holds_for_the_mean_and_few_positives_do_not_ruin_its_alerts(positives):
    generator, recalls, alerts = np.random.default_rng(positives), [], []
    for _ in range(1500):
        threshold = find_threshold("min_recall", *wrongly_labelled(generator, 25 * positives, positives), 0.8)
        assert threshold.statement == "average"
        recalls.append(0.95 * norm.sf(threshold.value, 4) + 0.05 * norm.sf(threshold.value))
        alerts.append(0.04 * recalls[-1] + 0.96 * norm.sf(threshold.value))
    error = np.std(recalls) / 1500**0.5
    # The threshold is lowered where no alert is added, so the mean lies a little above k / (n + 1).
    assert 0.8 - 3 * error < np.mean(recalls) < np.ceil(0.8 * (positives + 1)) / (positives + 1) + 0.06
    assert np.median(alerts) < 0.055 and (positives < 25 or np.quantile(alerts, 0.9) < 0.055)


@pytest.mark.parametrize(("rule", "target"), [("max_alerts", 0.05), ("min_precision", 0.7)])
def test_alerts_and_precision_on_average_hold_for_the_mean(rule, target):
    generator, values = np.random.default_rng(0), []
    for _ in range(1000):
        threshold = find_threshold(rule, *sample_scores(generator, rows=1000, separation=3), target)
        assert threshold.statement == "average"
        of_positives, of_others = norm.sf(threshold.value, 3), norm.sf(threshold.value)
        alerts = 0.1 * of_positives + 0.9 * of_others
        values.append(alerts if rule == "max_alerts" else 0.1 * of_positives / alerts)
    slack = 3 * np.std(values) / 1000**0.5
    assert np.mean(values) < target + slack if rule == "max_alerts" else np.mean(values) > target - slack


def test_a_recall_on_average_is_that_of_one_row_of_each_new_group():
    """With unequal groups whose large ones are harder, all rows as independent miss the recall of one row a group."""
    means = {}
    for by_group in (True, False):
        generator, found = np.random.default_rng(0), []
        for _ in range(400):
            sizes = np.r_[generator.choice([1, 1, 1, 20], 40), np.ones(400, int)]  # the last ones have no label
            group = np.repeat(np.arange(440), sizes)
            scores = 2 * generator.normal(size=440)[group] + 2 * (sizes[group] > 1) + generator.normal(size=len(group))
            threshold = find_threshold("min_recall", scores, group < 40, 0.8, None, group if by_group else None)
            size = generator.choice([1, 1, 1, 20], 4000)  # one row of each new group
            new = 2 * generator.normal(size=4000) + 2 * (size > 1) + generator.normal(size=4000)
            found.append((new > threshold.value).mean())
        means[by_group] = np.mean(found)
    assert means[True] > 0.79 and means[False] < 0.75


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("confidence", [0.9, None])
@pytest.mark.parametrize("shift", [-2e-5, 2e-5])
def test_rounding_errors_of_another_runtime_change_no_decision(rule, confidence, shift):
    """Many equal sequences lie at the threshold, and their scores differ slightly on another machine."""
    generator = np.random.default_rng(0)
    scores = np.repeat([3.0, 2.0, 1.0, 0.0], [50, 100, 300, 550])
    is_positive = np.repeat([True, False, True, False], [45, 105, 20, 830])
    target = 0.1 if rule == "max_alerts" else 0.5
    threshold = find_threshold(rule, scores, is_positive, target, confidence).value
    rounded_otherwise = scores + shift * generator.random(1000)
    np.testing.assert_array_equal(scores >= threshold, rounded_otherwise >= threshold)


def test_recall_beyond_the_target_is_taken_where_it_costs_no_alert():
    scores = np.repeat([9.0, 5.0, 1.0], [20, 100, 880])
    is_positive = np.repeat([False, True, False], [20, 100, 880])
    assert 1.0 < find_threshold("min_recall", scores, is_positive, 0.5, 0.9).value < 5.0
    assert find_threshold("min_recall", scores[is_positive], is_positive[is_positive], 0.5, 0.9).value < 5.0
