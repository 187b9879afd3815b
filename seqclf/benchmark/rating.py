"""Rating of dynamic graphs against static ones: good, acceptable or bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seqclf.benchmark.memory import MemoryGrowth
from seqclf.benchmark.structure_changes import StructureChanges
from seqclf.benchmark.timing import ModeTiming

# Limits as ratios to static, in the terms of the literature on dynamic graphs.
GOOD_TIME_RATIO, BAD_TIME_RATIO = 1.15, 1.30
BAD_MEMORY_RATIO = 1.10


@dataclass(frozen=True)
class Rating:
    """`word`: good, acceptable, bad or none. `reason`: the figures behind it."""

    word: str
    reason: str


def rate_dynamic(timings: Mapping[str, ModeTiming], growth: MemoryGrowth, structure: StructureChanges) -> Rating:
    """Rate the dynamic mode of a workload. The rating is "none" unless the dynamic and the static mode ran."""
    dynamic, static = timings.get("dynamic"), timings.get("static")
    if dynamic is None or static is None or dynamic.time_ratio is None:
        return Rating("none", "dynamic or static did not run")
    memory_ratio = dynamic.memory_mb / static.memory_mb if dynamic.memory_mb and static.memory_mb else None
    reason = f"{speed_text(dynamic.time_ratio)} as static"
    if memory_ratio is not None:
        reason += f", with {memory_ratio:.2f} times its memory"
    if structure.errors:
        return Rating("bad", f"{reason}; an error when structure changes: {structure.errors[0]}")
    if growth.leaks:
        return Rating("bad", f"{reason}; memory grows by {growth.mb_per_1000_steps:.1f} MB per 1000 steps")
    return Rating(rating_word(dynamic.time_ratio, memory_ratio), reason)


def speed_text(time_ratio: float) -> str:
    """Say in words what a ratio of times means: a mode that needs a ninth of the time is 9 times as fast.

    >>> speed_text(0.111), speed_text(0.8), speed_text(1.001), speed_text(1.25)
    ('9.0 times as fast', '1.25 times as fast', 'as fast', '1.25 times as slow')
    """
    if 0.99 <= time_ratio <= 1.01:
        return "as fast"
    times = max(time_ratio, 1 / time_ratio)
    figure = f"{times:.0f}" if times >= 10 else f"{times:.1f}" if times >= 2 else f"{times:.2f}"
    return f"{figure} times as {'fast' if time_ratio < 1 else 'slow'}"


def rating_word(time_ratio: float, memory_ratio: float | None = None) -> str:
    """Rate the ratios of dynamic to static: iteration time, and memory where it is known.

    >>> rating_word(0.9), rating_word(1.2), rating_word(1.4)
    ('good', 'acceptable', 'bad')
    >>> rating_word(0.9, memory_ratio=1.2)
    'bad'
    """
    if time_ratio >= BAD_TIME_RATIO or (memory_ratio is not None and memory_ratio > BAD_MEMORY_RATIO):
        return "bad"
    return "good" if time_ratio <= GOOD_TIME_RATIO else "acceptable"
