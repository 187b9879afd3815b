"""Smoothed monitored metric: the best epoch is chosen by a mean over the last validations.

The highest of many noisy values is often a lucky one. The mean needs no later validation, so the best checkpoint is
written at once, but it finds a peak up to two validations late. Short trainings, where the lag would cost more than the
noise, average fewer validations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MONITORED = "validation/monitor"  # name of the logged value for the best checkpoint and early stopping

MAX_WINDOW = 3  # validations of a mean; in simulations, longer means gained less or lagged too far
WINDOW_FRACTION = 0.1  # largest fraction of all validations of a training that a mean spans
LOWEST = -1e30  # value of an undefined metric, finite for early stopping
TIE_BREAK = 1e-4  # weight of the loss, smaller than the change in recall from one of 10,000 rows


def epoch_value(scores: Mapping[str, float], monitor: str, *, lower_is_better: bool = False) -> float:
    """Return a number by which epochs are compared, the highest for the best epoch.

    `scores`: validation scores of the epoch, including its loss, which decides between equal values, as on small
    splits. `monitor`: the score that decides; an undefined score is below all others. The lower loss is always better.

    >>> epochs = [{"recall": 0.9, "loss": 0.3}, {"recall": 0.9, "loss": 0.2}, {"recall": 0.8, "loss": 0.1}]
    >>> max(epochs, key=lambda scores: epoch_value(scores, "recall"))
    {'recall': 0.9, 'loss': 0.2}
    """
    sign = -1.0 if lower_is_better or monitor == "loss" else 1.0
    loss = scores["loss"] / (1 + scores["loss"])
    return sign * scores[monitor] - TIE_BREAK * loss if monitor in scores else LOWEST * (1 + loss)


def window_length(epochs: int | None, every: int | None = 1) -> int:
    """Return the number of validations that are averaged: of `epochs` (None or -1: no limit), one in `every`.

    >>> [window_length(epochs) for epochs in (4, 10, 20, 30, 190, -1)]
    [1, 1, 2, 3, 3, 3]
    """
    if epochs is None or epochs < 0:
        return MAX_WINDOW
    return max(1, min(MAX_WINDOW, int(WINDOW_FRACTION * epochs / (every or 1))))


def smoothed_value(values: Sequence[float], window: int) -> float:
    """Return the mean of the last `window` values, or of all if there are fewer.

    >>> smoothed_value([0.0, 0.5, 1.0, 0.75], window=3)
    0.75
    """
    recent = values[-window:]
    return math.fsum(recent) / len(recent)  # an exact sum, so means of equal values are equal in any order


class SmoothedMonitor:
    """The mean of a validation metric over the last validations. `metric`: its name, None without one.

    `lower_is_better`: of a metric other than the loss. `values`: dict number of optimizer steps → value of the last
    validations; a resumed run may repeat a validation.
    """

    def __init__(self, metric: str | None, *, lower_is_better: bool = False):
        self.metric = metric
        self.lower_is_better = lower_is_better
        self.values: dict[int, float] = {}

    def add(self, scores: Mapping[str, float], step: int, window: int) -> float:
        """Return the mean with the scores of a validation after `step`. An undefined metric enters no mean."""
        assert self.metric is not None
        value = epoch_value(scores, self.metric, lower_is_better=self.lower_is_better)
        if self.metric not in scores or not math.isfinite(value):
            return value
        self.values = dict(list({**self.values, step: value}.items())[-MAX_WINDOW:])
        return smoothed_value(list(self.values.values()), window)
