"""A jump in magnitude is a broken reading only where the other values do not have such jumps themselves."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.scales import usual_range
from seqclf.data.schema.schema import Field


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


@pytest.mark.parametrize("fill", [1e15, 999999999.0, -99999.0, 9999.0])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_repeated_fill_value_does_not_flatten_a_channel(fill, share):
    generator = np.random.default_rng(0)
    values = generator.normal(50, 10, 4000)
    values[generator.random(4000) < share] = fill
    encoder = NumberEncoder(Field("x", "number", ("x",), width=1))
    batch = pa.record_batch({"x": pa.array([values.tolist()])})
    encoder.fit(lambda *names: iter([batch]))
    scaled = encoder.encode(batch).arrays["x"][:, 0]
    assert scaled[values != fill].std() == pytest.approx(1, abs=0.05)
    assert len(encoder.outlier_warnings()) == 1 and np.abs(scaled).max() < 6


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([1.0, 2.0, 9999.0], [500, 500, 1]),  # once
        np.concatenate([np.arange(1100.0), [9999, 9999]]),  # as large as others, nearly
        np.repeat([0.0, 1.0, 1234567.0], 300),  # of no digits of a fill value
        np.repeat([0.0, 100.0], 300),
    ],
)
def test_repeated_values_of_the_data_stay(values):
    assert usual_range(values, values.min(), values.max()) is None
