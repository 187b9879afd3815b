"""Memory figures of this process."""

import subprocess
import sys

import pytest

SCRIPT = """
from seqclf.system.environment import peak_mb, resident_mb
before = resident_mb()
block = bytearray(200 * 10**6)
with_block = resident_mb()
del block
print(before, with_block, resident_mb(), peak_mb())
"""


def test_the_peak_covers_memory_that_was_freed():
    ballast = bytearray(300 * 10**6)  # of the parent process, whose peak must not count
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, with_block, after, peak = map(float, done.stdout.split())
    assert with_block - before == pytest.approx(200, abs=5)
    assert after < before + 50
    assert with_block <= peak + 1 < with_block + 50
    del ballast
