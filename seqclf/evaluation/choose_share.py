"""Choice of the share of the wide paths in a mixture, by validation rows.

The rule takes the largest share of the wide paths whose validation loss is within half a standard error of the lowest
loss. It is the standard error of the paired difference, row by row or group by group. So the network has a share only
where the rows show that it adds something.

Within one nat over all rows or groups together, the price of a parameter in Akaike's criterion, losses count as equal.
Where both models are right on nearly all rows, the differences are tiny and all alike, and their spread says nothing of
the rare rows that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.calibration import fit_temperature, softmax
from seqclf.system.json_result import JsonResult

SHARES = tuple(round(tenths / 10, 1) for tenths in range(11))
TOLERANCE = 0.5  # standard errors of the lowest loss within which a loss counts as equal
MIN_GAIN = 1.0  # nats that a better share must gain over all rows or groups together


@dataclass(frozen=True, kw_only=True)
class SharePoint(JsonResult):
    """Validation loss of a mixture. `excess`: its distance to the lowest loss. `error`: standard error of that."""

    share: float
    loss: float
    excess: float
    error: float


@dataclass(frozen=True, kw_only=True)
class ShareChoice(JsonResult):
    """The chosen `share` of the wide paths, in [0, 1].

    `scale`: factor that calibrates the logits of the network. `rows`: number of validation rows. `points`: validation
    loss of each share. `paths`: titles of the wide paths, such as "n-grams".
    """

    share: float
    scale: float
    rows: int
    points: tuple[SharePoint, ...]
    paths: tuple[str, ...] = ()

    def point(self, share: float) -> SharePoint:
        """Return the validation loss of one of `SHARES`."""
        return next(point for point in self.points if point.share == share)


def choose_share(
    network: np.ndarray,
    wide: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> ShareChoice:
    """Choose the share of the wide paths.

    Args:
        network: (N, C) logits of the network for validation rows.
        wide: (N, C) calibrated logits of the wide paths for the same rows.
        labels: (N,) class numbers.
        weights: (C,) weight of each class in the loss, None for equal weights.
        group: (N,) group numbers, None where each row stands alone.

    >>> labels = np.array([0, 1] * 50)
    >>> right, silent = 4.0 * np.eye(2)[labels], np.zeros((100, 2))
    >>> choose_share(right, silent, labels).share, choose_share(silent, right, labels).share
    (0.3, 1.0)
    """
    row_weights = np.ones(len(labels)) if weights is None else weights[labels]
    scale = 1 / fit_temperature(network, labels, row_weights)
    losses = []
    for share in SHARES:
        mixed = softmax((1 - share) * scale * network + share * wide)
        chosen = np.maximum(mixed[np.arange(len(labels)), labels], np.finfo(np.float64).tiny)
        losses.append(-np.log(chosen) * row_weights)
    total = row_weights.sum() if len(labels) else 1.0
    units = _units(labels, group)
    best = min(losses, key=np.sum)
    points = []
    for share, loss in zip(SHARES, losses, strict=True):
        excess = float((loss - best).sum() / total)
        points.append(
            SharePoint(
                share=share,
                loss=float(loss.sum() / total),
                excess=excess,
                error=_standard_error(loss - best, row_weights, units, excess),
            )
        )
    return ShareChoice(share=max(_equal(points, units)), scale=float(scale), rows=len(labels), points=tuple(points))


def choose_parts(
    later: np.ndarray, earlier: np.ndarray, labels: np.ndarray, group: np.ndarray | None = None
) -> tuple[float, float]:
    """Choose whether the earlier or the later of two models is enough, and else how much each of them gives.

    The arguments are like those of `choose_share`, for rows that took part in the fit of neither model.

    Returns:
        Share of the earlier model, and the factor that calibrates the logits of the later one. The share is 1 if the
        loss of the earlier model counts as equal to the lowest one, else 0 if that of the later one does, else that of
        the lowest loss.

    >>> labels = np.array([0, 1] * 50)
    >>> right, silent = 4.0 * np.eye(2)[labels], np.zeros((100, 2))
    >>> choose_parts(right, silent, labels)[0], choose_parts(silent, right, labels)[0]
    (0.0, 1.0)
    """
    choice = choose_share(later, earlier, labels, group=group)
    equal = _equal(choice.points, _units(labels, group))
    alone = [share for share in (1.0, 0.0) if share in equal]
    lowest = min(choice.points, key=lambda point: point.loss).share
    return alone[0] if alone else lowest, choice.scale


def may_gain(
    later: np.ndarray, earlier: np.ndarray, labels: np.ndarray, group: np.ndarray | None, independent: int
) -> bool:
    """Return True if some of the training rows show a gain by a later model beside an earlier one, however uncertain.

    `independent`: number of independent rows or groups of the whole training split, over which the gain would be more
    than one nat. For the other arguments, see `choose_parts`.
    """
    choice = choose_share(later, earlier, labels, group=group)
    return choice.point(1.0).excess > MIN_GAIN / independent


def _units(labels: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """Return the numbers (N,) of rows or groups that are independent of each other."""
    return np.arange(len(labels)) if group is None else group


def _equal(points: Iterable[SharePoint], units: np.ndarray) -> list[float]:
    """Return the shares whose loss counts as equal to the lowest one. `units`: see `_units`."""
    least = MIN_GAIN / max(1, len(np.unique(units)))
    return [point.share for point in points if point.excess <= max(point.error * TOLERANCE, least)]


def _standard_error(differences: np.ndarray, weights: np.ndarray, units: np.ndarray, mean: float) -> float:
    """Return the standard error of the weighted mean of differences (N,) by `units` (N,), numbers of rows or groups."""
    sums = np.bincount(units, differences - mean * weights)
    if len(sums) < 2:
        return float("inf")
    return float(np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / weights.sum())
