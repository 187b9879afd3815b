"""Formatting of durations as text."""

from __future__ import annotations

import math

UNITS = (("s", 1), ("min", 60), ("h", 3600), ("d", 86400))
SMALL_UNITS = ((1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def duration_text(seconds: float) -> str:
    """Format a duration as text, with at most two units of time.

    >>> duration_text(34320), duration_text(75), duration_text(2.5), duration_text(0.0301), duration_text(-90061)
    ('9 h 32 min', '1 min 15 s', '2.5 s', '30.1 ms', '-1 d 1 h')
    """
    if not math.isfinite(seconds):
        return str(seconds)
    sign, size = "-" if seconds < 0 else "", abs(seconds)
    if size == 0:
        return "0 s"
    if size < 0.9995:
        factor, unit = next(((factor, unit) for factor, unit in SMALL_UNITS if size >= factor), SMALL_UNITS[-1])
        return f"{sign}{size / factor:.3g} {unit}"
    if size < 59.95:
        return f"{sign}{size:.3g} s"
    for (small_unit, small), (unit, large), longer in zip(UNITS, UNITS[1:], [3600, 86400, math.inf], strict=False):
        count = round(size / small)  # round before the division, so that "59 min 60 s" cannot occur
        if count * small < longer:
            whole, rest = divmod(count, large // small)
            return f"{sign}{whole:,} {unit}" + (f" {rest} {small_unit}" if rest else "")
    raise AssertionError("the last unit has no longer one")
