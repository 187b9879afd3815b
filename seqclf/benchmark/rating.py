"""Dynamic against static in the terms of the writings on dynamic graphs: good, acceptable, bad."""

from __future__ import annotations

from typing import Any

GOOD, BAD = 1.15, 1.30  # times the static iteration time
SPIKE = 1.10  # times the static memory


def verdict(modes: dict[str, dict[str, Any]], leak: dict[str, Any], structure: dict[str, Any]) -> dict[str, str]:
    """`word` and `reason`: good within 15 % of the static iteration time and without more memory; bad at 30 % or with
    a leak, a spike of memory or an error when structure changes."""
    dynamic, static = modes.get("dynamic", {}), modes.get("static", {})
    if "step_ms" not in dynamic or "step_ms" not in static:
        return {"word": "none", "reason": "dynamic or static did not run"}
    ratio = dynamic["time_ratio"]
    memory = dynamic["memory_mb"] / static["memory_mb"] if "memory_mb" in dynamic and "memory_mb" in static else None
    told = f"{ratio:.2f} times the iteration time of static"
    if memory is not None:
        told += f", {memory:.2f} times its memory"
    if structure["errors"]:
        return {"word": "bad", "reason": f"{told}; an error when structure changes: {structure['errors'][0]}"}
    if leak["leaks"]:
        return {"word": "bad", "reason": f"{told}; memory grows by {leak['mb_per_1000_steps']:.1f} MB per 1000 steps"}
    if memory is not None and memory > SPIKE:
        return {"word": "bad", "reason": told}
    word = "good" if ratio <= GOOD else "acceptable" if ratio < BAD else "bad"
    return {"word": word, "reason": told}
