"""Memory use of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STATUS, SIZES = Path("/proc/self/status"), Path("/proc/self/statm")


def resident_mb() -> float:
    """Return the resident memory of this process in MB (1e6 bytes): the current one on Linux, else the peak."""
    if not SIZES.exists():
        return peak_mb()
    return int(SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (1e6 bytes), 0 on Windows.

    On Linux, `getrusage` is not used, because its peak is at least the memory of the parent process.
    """
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return 0.0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes in one unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
