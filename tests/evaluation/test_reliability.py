"""Reliability bins: counts by a plain loop, and how often a right model is called wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.report.reliability import EDGES, MIN_ROWS, reliability_bins


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.sampled_from([0.05, 1.0, 20.0]))
def test_bins_count_every_row_once_and_hold_enough_rows(seed, rows, shape):
    generator = np.random.default_rng(seed)
    # Also probabilities that are an edge themselves.
    probability = np.where(generator.random(rows) < 0.2, generator.choice(EDGES, rows), generator.beta(shape, 1, rows))
    happened = generator.random(rows) < probability
    bins = reliability_bins(happened, probability)
    assert [part.high for part in bins[:-1]] == [part.low for part in bins[1:]]
    assert (bins[0].low, bins[-1].high) == (0, 1)
    for part in bins:
        inside = [
            low for low in range(rows) if part.low <= probability[low] < part.high or probability[low] == part.high == 1
        ]
        assert part.rows == len(inside) and part.observed == sum(happened[inside])
        assert part.expected == pytest.approx(sum(probability[inside]))
        assert part.rows >= min(rows, MIN_ROWS)
        assert part.share_low <= part.share <= part.share_high


def share_of_false_alarms(probability, repeats=500):
    """Share of the bins of right probabilities that are called too high or too low."""
    generator = np.random.default_rng(0)
    wrong = total = 0
    for _ in range(repeats):
        drawn = generator.choice(probability, len(probability))
        bins = reliability_bins(generator.random(len(drawn)) < drawn, drawn)
        wrong += sum(part.bias != 0 for part in bins)
        total += len(bins)
    return wrong / total


@pytest.mark.soak
@pytest.mark.parametrize(("a", "b", "rows"), [(0.05, 3, 2000), (0.02, 5, 300), (2, 2, 300), (5, 0.1, 1000)])
def test_at_most_one_bin_in_twenty_of_a_right_model_is_called_wrong(a, b, rows):
    """Rare positives, few rows, even ones and nearly certain ones. Probabilities differ within a bin."""
    probability = np.random.default_rng(1).beta(a, b, rows)
    assert share_of_false_alarms(probability) < 0.05


def test_a_rare_class_with_twice_the_predicted_rate_is_seen():
    generator = np.random.default_rng(0)
    probability = generator.beta(0.3, 20, 20_000)
    bins = reliability_bins(generator.random(20_000) < np.minimum(1, 2 * probability), probability)
    assert sum(part.bias == -1 for part in bins) >= 4 and all(part.bias <= 0 for part in bins)
