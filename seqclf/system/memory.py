"""How much memory this process holds."""

from __future__ import annotations

import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    return _status_mb("VmRSS") if STATUS.exists() else peak_mb()


def peak_mb() -> float:
    """Of this process alone: what `getrusage` says is handed on by the process that started it."""
    if STATUS.exists():
        return _status_mb("VmHWM")
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _status_mb(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1.024e-3
