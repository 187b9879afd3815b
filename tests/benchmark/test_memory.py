"""Memory: what grows is a leak, what wavers is not."""

import numpy as np
import pytest

from seqclf.benchmark.memory import slope
from seqclf.system.memory import peak_mb, resident_mb

GENERATOR = np.random.default_rng(0)


def test_the_slope_of_a_line_is_found_with_its_interval():
    found = slope(500 + 0.02 * np.arange(400) + GENERATOR.normal(0, 0.5, 400))
    assert found["low"] < 20 < found["high"] and found["high"] - found["low"] < 3
    assert found["leaks"] and found["steps"] == 400


@pytest.mark.parametrize(
    "used",
    [
        np.full(300, 512.0),
        512 + GENERATOR.normal(0, 2, 300),
        512 + np.repeat(GENERATOR.normal(0, 3, 30), 10),
        512 + 1e-4 * np.arange(300),  # surely rising, and by 0.03 MB
    ],
)
def test_what_wavers_or_hardly_rises_is_no_leak(used):
    assert not slope(used)["leaks"]


def test_memory_that_is_taken_is_seen():
    before = resident_mb()
    held = np.ones(50_000_000 // 8)
    assert 45 < resident_mb() - before < 60
    peak = peak_mb()
    del held
    assert peak_mb() >= peak - 1 >= before + 40  # the system counts them apart, and in strides
