"""Learning rate schedule: warmup, then decay, by optimizer steps or by the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lightning.pytorch.callbacks import Timer

from seqclf.errors import InputError

DECAYS = ("cosine", "linear", "none")
UNLIMITED_STEPS = 1e9  # more steps than any time limit leaves room for


def schedule_factor(
    steps: float, elapsed: Callable[[], float] | None = None, *, warmup: float, decay: str, floor: float
) -> Callable[[int], float]:
    """Return the multiplier of the learning rate as a function of the optimizer step.

    The rate rises over the share `warmup` of all `steps`, then falls to the share `floor` along `decay` (`cosine`,
    `linear` or `none`). With a time limit, `elapsed()` returns the share of it that has passed. Training is then as far
    on as the steps or the clock say, whichever is more, so that the rate is at its floor when either limit ends
    training. Raises InputError on another `decay`.

    >>> factor = schedule_factor(100, warmup=0.1, decay="linear", floor=0.2)
    >>> [round(factor(step), 2) for step in (0, 5, 10, 55, 100)]
    [0.09, 0.55, 1.0, 0.6, 0.2]
    """
    if decay not in DECAYS:
        raise InputError(f"optimizer.schedule.decay={decay}", "must be cosine, linear or none")
    if not math.isfinite(steps) and elapsed is not None:
        steps = UNLIMITED_STEPS  # the clock alone counts
    warmup_steps = max(1.0, warmup * steps) if math.isfinite(steps) else 1.0

    def factor(step: int) -> float:
        position: float = step
        if elapsed is not None:
            position = max(position, min(1.0, elapsed()) * steps)
        if position < warmup_steps:
            # Not from 0: the first step would train nothing.
            return (position + 1) / (warmup_steps + 1)
        if decay == "none" or not math.isfinite(steps):
            return 1.0
        progress = min(1.0, (position - warmup_steps) / max(1.0, steps - warmup_steps))
        remaining = (1 + math.cos(math.pi * progress)) / 2 if decay == "cosine" else 1 - progress
        return floor + (1 - floor) * remaining

    return factor


def elapsed_share(trainer: Any) -> Callable[[], float] | None:
    """Return a function of the share of `trainer.max_time` that has passed, or None without a time limit."""
    timer = next((callback for callback in trainer.callbacks if isinstance(callback, Timer)), None)
    if timer is None or timer.time_remaining() is None:
        return None

    def elapsed() -> float:
        passed, left = timer.time_elapsed(), timer.time_remaining() or 0.0
        share = passed / max(1e-9, passed + left)
        # By its own clock each rank would take steps of another size, and their weights would drift apart.
        return trainer.strategy.broadcast(share) if trainer.world_size > 1 else share

    return elapsed
