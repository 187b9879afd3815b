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
    reason = f"{dynamic.time_ratio:.2f} times the iteration time of static"
    if memory_ratio is not None:
        reason += f", {memory_ratio:.2f} times its memory"
    if structure.errors:
        return Rating("bad", f"{reason}; an error when structure changes: {structure.errors[0]}")
    if growth.leaks:
        return Rating("bad", f"{reason}; memory grows by {growth.mb_per_1000_steps:.1f} MB per 1000 steps")
    return Rating(rating_word(dynamic.time_ratio, memory_ratio), reason)


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
