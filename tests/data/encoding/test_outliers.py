"""A jump in magnitude is a broken reading only where the other values do not have such jumps themselves."""

import numpy as np
import pytest

from seqclf.data.encoding.scales import usual_range


@pytest.mark.parametrize("seed", [518, 7167, 8188, 8693, 12520])
def test_the_largest_of_many_decades_is_usual(seed):
    """Samples whose largest value is more than a million times the second one."""
    values = np.random.default_rng(seed).lognormal(0, 8, 300)
    assert usual_range(values, values.min(), values.max()) is None


@pytest.mark.parametrize("deviation", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("broken", [1e13, 1e16, 1e19])
def test_a_broken_reading_is_found_among_skewed_values(deviation, broken):
    for seed in range(50):
        values = np.random.default_rng(seed).lognormal(0, deviation, 300)
        values[0] = broken
        lowest, highest = usual_range(values, values.min(), values.max())
        assert lowest == values[1:].min() and highest == values[1:].max()


def test_a_broken_reading_is_found_among_zeros():
    values = np.append(np.zeros(299), 1e12)
    assert usual_range(values, 0.0, 1e12) is None, "zeros have no deviation, and so no scale of their own"
    values[:100] = 1.0
    assert usual_range(values, 0.0, 1e12) == (0.0, 1.0)
