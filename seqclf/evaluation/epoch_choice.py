"""Choice of the best epoch of a training by its validation scores."""

from __future__ import annotations

from collections.abc import Mapping

TIE_BREAK = 1e-4  # weight of the loss, less than one row's share of the recall of 10,000 rows


def epoch_value(scores: Mapping[str, float], monitor: str) -> float:
    """Return the value by which epochs are compared, the highest being the best.

    `scores`: validation scores of the epoch, with its loss. `monitor`: the score that decides. An undefined one counts
    as 0. Recall on a small validation set takes few values: among epochs of equal recall, the lower loss is better.

    >>> epochs = [{"recall": 0.9, "loss": 0.3}, {"recall": 0.9, "loss": 0.2}, {"recall": 0.8, "loss": 0.1}]
    >>> max(epochs, key=lambda scores: epoch_value(scores, "recall"))
    {'recall': 0.9, 'loss': 0.2}
    """
    sign = -1.0 if monitor == "loss" else 1.0
    return sign * scores.get(monitor, 0.0) - TIE_BREAK * scores["loss"] / (1 + scores["loss"])
