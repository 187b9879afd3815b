"""Memory use of this process."""

from __future__ import annotations

import psutil


def resident_mb() -> float:
    """Return the current resident memory of this process in MB (1e6 bytes)."""
    return psutil.Process().memory_info().rss / 1e6
