"""Memory use of this process."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Return the current resident memory of this process in MB (1e6 bytes)."""
    return psutil.Process().memory_info().rss / 1e6


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (1e6 bytes).

    On Linux, psutil does not report a peak, and that of `getrusage` is at least the memory of the parent process.
    """
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes in one unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
