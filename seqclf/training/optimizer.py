"""Optimizer of a network, with a learning rate schedule by optimizer steps or by a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch.callbacks import Timer
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from seqclf.config.build import arguments_of, build, locate
from seqclf.errors import InputError

DECAYS = ("cosine", "linear", "none")
UNLIMITED_STEPS = 1e9  # more steps than a training with a time limit can reach


def build_optimizer(
    network: nn.Module,
    settings: Mapping[str, Any],
    steps: float,
    fused: bool = True,
    elapsed: Callable[[], float] | None = None,
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Return the optimizer of `settings` and its learning rate schedule (see `schedule_factor`), or raise InputError.

    `steps`: of the training. `fused`: False overrides `optimizer.fused`, for mixed precision. `elapsed`: returns the
    elapsed fraction of the time limit, None without one.
    """
    settings = dict(settings)
    taken = arguments_of(locate(settings["_target_"]))
    if not fused or "fused" not in taken.names:
        settings.pop("fused", None)
    schedule = settings.pop("schedule")
    settings.pop("average", None)
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in network.parameters() if weight.ndim > 1]},
        {"params": [weight for weight in network.parameters() if weight.ndim <= 1]},
    ]
    if taken.accepts("weight_decay"):
        # Biases, norms and other vectors have no weight decay, because decay does not regularise them.
        for group, decay in zip(groups, (settings.pop("weight_decay", 0.0), 0.0), strict=True):
            group["weight_decay"] = decay
    elif "weight_decay" in settings:
        raise InputError("optimizer.weight_decay", f"no such argument of {taken.owner}", "remove it")
    optimizer = build(settings, torch.optim.Optimizer, params=groups)
    return optimizer, LambdaLR(optimizer, schedule_factor(steps, elapsed, **schedule))


def schedule_factor(
    steps: float, elapsed: Callable[[], float] | None = None, *, warmup: float, decay: str, floor: float
) -> Callable[[int], float]:
    """Return a function that maps the number of an optimizer step to a multiplier of the learning rate.

    `warmup`: fraction of the `steps` of the training in which the learning rate rises. `decay`: shape of the decrease
    after it (`cosine`, `linear` or `none`) to the multiplier `floor`. `elapsed`: see `build_optimizer`. The progress is
    the larger fraction, of the steps or of the time, so that either limit ends the training at the minimum.

    >>> factor = schedule_factor(100, warmup=0.1, decay="linear", floor=0.2)
    >>> [round(factor(step), 2) for step in (0, 5, 10, 55, 100)]
    [0.09, 0.55, 1.0, 0.6, 0.2]
    """
    if decay not in DECAYS:
        raise InputError(f"optimizer.schedule.decay={decay}", "must be cosine, linear or none")
    if not math.isfinite(steps) and elapsed is not None:
        steps = UNLIMITED_STEPS  # the progress then depends only on the elapsed time
    warmup_steps = max(1.0, warmup * steps) if math.isfinite(steps) else 1.0

    def factor(step: int) -> float:
        position: float = step
        if elapsed is not None:
            position = max(position, min(1.0, elapsed()) * steps)
        if position < warmup_steps:
            # The multiplier does not start at 0, because the first step would then not change the weights.
            return (position + 1) / (warmup_steps + 1)
        if decay == "none" or not math.isfinite(steps):
            return 1.0
        progress = min(1.0, (position - warmup_steps) / max(1.0, steps - warmup_steps))
        remaining = (1 + math.cos(math.pi * progress)) / 2 if decay == "cosine" else 1 - progress
        return floor + (1 - floor) * remaining

    return factor


def elapsed_share(trainer: Any) -> Callable[[], float] | None:
    """Return the `elapsed` of `build_optimizer` for `trainer.max_time`."""
    timer = next((callback for callback in trainer.callbacks if isinstance(callback, Timer)), None)
    if timer is None or timer.time_remaining() is None:
        return None

    def elapsed() -> float:
        passed, left = timer.time_elapsed(), timer.time_remaining() or 0.0
        share = passed / max(1e-9, passed + left)
        # All ranks use the fraction of rank 0: with other learning rates, their weights would diverge.
        return trainer.strategy.broadcast(share) if trainer.world_size > 1 else share

    return elapsed
