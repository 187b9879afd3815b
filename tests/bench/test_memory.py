"""Memory in use and its peak are those of the process."""

import numpy as np

from seqclf.system.environment import peak_mb, resident_mb


def test_memory_in_use_is_measured():
    before = resident_mb()
    array = np.ones(50_000_000 // 8)
    assert 45 < resident_mb() - before < 60
    peak = peak_mb()
    del array
    assert peak_mb() >= peak - 1 >= before + 40  # the system counts both separately, and in strides
