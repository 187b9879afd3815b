"""Memory: steady growth is a leak, fluctuation is not."""

import numpy as np
import pytest

from seqclf.bench.machine import fit_growth
from seqclf.system.environment import peak_mb, resident_mb

GENERATOR = np.random.default_rng(0)


def test_the_slope_of_a_line_lies_in_its_interval():
    growth = fit_growth(500 + 0.02 * np.arange(400) + GENERATOR.normal(0, 0.5, 400))
    assert growth.low < 20 < growth.high and growth.high - growth.low < 3
    assert growth.leaks and growth.steps == 400


@pytest.mark.parametrize(
    "used_mb",
    [
        np.full(300, 512.0),
        512 + GENERATOR.normal(0, 2, 300),
        512 + np.repeat(GENERATOR.normal(0, 3, 30), 10),
        512 + 1e-4 * np.arange(300),  # significant, and only 0.03 MB
    ],
)
def test_fluctuation_and_tiny_growth_are_no_leak(used_mb):
    assert not fit_growth(used_mb).leaks


def test_memory_in_use_is_measured():
    before = resident_mb()
    array = np.ones(50_000_000 // 8)
    assert 45 < resident_mb() - before < 60
    peak = peak_mb()
    del array
    assert peak_mb() >= peak - 1 >= before + 40  # the system counts both separately, and in strides
