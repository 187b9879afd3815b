"""One pass over batches gives the statistics that numpy computes over all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.encoding.scales import SAMPLE_ROWS, Moments, Sample, fit_scales


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 3), st.booleans())
def test_moments_of_batches_agree_with_numpy(seed, count, channels, gaps):
    generator = np.random.default_rng(seed)
    values = generator.normal(1e6, 1.0, (count, channels))
    values[generator.random(values.shape) < 0.3 * gaps] = np.nan
    moments = Moments(channels)
    for part in np.array_split(np.arange(count), 4):
        moments.update(values[part])
    for channel in range(channels):
        present = values[~np.isnan(values[:, channel]), channel]
        assert moments.count[channel] == len(present)
        if len(present):
            assert moments.mean[channel] == pytest.approx(present.mean(), rel=1e-12)
            assert moments.deviation()[channel] == pytest.approx(present.std(), abs=1e-6)
            assert (moments.lowest[channel], moments.highest[channel]) == (present.min(), present.max())


def test_a_sample_of_few_rows_holds_all():
    sample = Sample()
    assert sample.rows is None
    for part in np.array_split(np.arange(1000), 7):
        sample.update(part)
    np.testing.assert_array_equal(sample.rows, np.arange(1000))


def test_a_sample_of_many_rows_is_uniform_and_reproducible():
    def sampled():
        sample = Sample()
        for part in np.array_split(np.arange(10 * SAMPLE_ROWS), 40):
            sample.update(part)
        return sample.rows

    rows = sampled()
    assert len(rows) == SAMPLE_ROWS == len(np.unique(rows)) and (np.diff(rows) > 0).all()
    tenths = np.histogram(rows, 10, (0, 10 * SAMPLE_ROWS))[0]
    assert abs(tenths - SAMPLE_ROWS / 10).max() < 5 * (SAMPLE_ROWS / 10) ** 0.5
    np.testing.assert_array_equal(rows, sampled())


def test_a_rare_flag_is_not_far_where_the_sample_lacks_it():
    flags = np.zeros((200_000, 2))
    flags[[7, 60_000, 150_000], 0] = 1.0
    flags[:, 1], flags[5, 1] = np.random.default_rng(0).normal(size=200_000), 1e12
    assert fit_scales([flags], 2, robust=False)[1].tolist() == [False, True]
