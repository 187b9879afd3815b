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


def rate_of_false_alarms(a, b, rows, repeats):
    """Share of the samples of right probabilities, beta distributed, of which any bin is called too high or too low."""
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(repeats):
        drawn = generator.beta(a, b, rows)
        wrong += any(part.bias for part in reliability_bins(generator.random(rows) < drawn, drawn))
    return wrong / repeats


def test_a_right_model_of_many_rows_is_hardly_ever_called_wrong():
    """With an interval of 95 % for each bin, some bin was called wrong in 0.33 and 0.24 of these samples."""
    assert rate_of_false_alarms(0.5, 0.5, 5000, 100) <= 0.05
    assert rate_of_false_alarms(0.05, 3, 2000, 100) <= 0.05


def test_a_rare_class_with_twice_the_predicted_rate_is_seen():
    generator = np.random.default_rng(0)
    probability = generator.beta(0.3, 20, 20_000)
    bins = reliability_bins(generator.random(20_000) < np.minimum(1, 2 * probability), probability)
    assert sum(part.bias == -1 for part in bins) >= 4 and all(part.bias <= 0 for part in bins)
