"""Comparison of the recalls of long and of shorter sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.design_effect import WORST_OF_DIFFERENCE, design_effect
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95  # probability that no range of lengths is named where the length does not matter
MIN_ROWS = 20  # rows on either side; with fewer, a range is not compared


@dataclass(frozen=True, kw_only=True)
class LengthDecline(JsonResult):
    """A range of the longest sequences, `low` to `high` tokens, whose recall is lower than the recall of shorter ones.

    `rows`: sequences in the range. `recall`, `recall_of_shorter`: means of the recalls of the classes that occur on
    both sides; a class has the same weight on both. `difference`: `recall - recall_of_shorter`, negative.
    `difference_low`, `difference_high`: confidence limits of the difference. Each limit alone holds with a confidence
    of 95 % for all compared ranges together.
    """

    low: int
    high: int
    rows: int
    recall: float
    recall_of_shorter: float
    difference: float
    difference_low: float
    difference_high: float


def find_length_decline(
    labels: np.ndarray,
    predicted: np.ndarray,
    lengths: np.ndarray,
    buckets: Sequence[tuple[int, int]],
    only: int | None = None,
    group: np.ndarray | None = None,
) -> LengthDecline | None:
    """Return the range of the longest sequences whose recall is lowest beyond chance, None if there is none.

    Each range from the start of a bucket (but the first) to the longest sequence is compared with all shorter
    sequences. Recalls are compared within classes, so that a class that is both longer and harder does not count. Where
    rows come in groups, their counts are divided by a design effect.

    Args:
        labels, predicted: (N,) class numbers.
        lengths: (N,) tokens.
        buckets: ranges of lengths, both ends included, from short to long (see `slices.length_buckets`).
        only: the number of the class whose recall matters; None: all classes.
        group: (N,) codes of the groups of the rows, None where each row stands alone.

    Example:
        >>> labels, lengths = np.zeros(200, int), np.repeat([5, 50], 100)
        >>> predicted = np.where((lengths == 50) & (np.arange(200) % 2 == 0), 1, 0)  # half of the long ones are missed
        >>> decline = find_length_decline(labels, predicted, lengths, [(5, 5), (6, 50)])
        >>> decline.low, decline.rows, decline.recall, decline.recall_of_shorter
        (6, 100, 0.5, 1.0)

    Reference: X. Yan, X. G. Su, "Stratified Wilson and Newcombe confidence intervals for multiple binomial
    proportions", Statistics in Biopharmaceutical Research 2 (2010).
    """
    from scipy.stats import norm

    starts = [low for low, _ in buckets[1:]]
    if not starts:
        return None
    # One-sided, as only a decline is reported, and Bonferroni's correction for the ranges.
    z = float(norm.ppf(1 - (1 - CONFIDENCE) / len(starts)))
    declines = [
        decline
        for start in starts
        if (decline := _compare(labels, predicted, lengths, start, only, z, group)) is not None
        and decline.difference_high < 0
    ]
    return min(declines, key=lambda decline: decline.difference_high, default=None)


def _compare(
    labels: np.ndarray,
    predicted: np.ndarray,
    lengths: np.ndarray,
    start: int,
    only: int | None,
    z: float,
    group: np.ndarray | None,
) -> LengthDecline | None:
    """Compare the rows from `start` tokens on with the shorter ones, None where too few share a class."""
    is_long = lengths >= start
    classes = int(labels.max()) + 1
    rows, hits = (
        np.stack([np.bincount(labels[side & chosen], minlength=classes) for side in (is_long, ~is_long)]).astype(float)
        for chosen in (np.ones(len(labels), bool), labels == predicted)
    )  # each (2, C): long and shorter sequences
    shared = np.asarray((rows > 0).all(axis=0))
    if only is not None:
        shared &= np.arange(classes) == only
    rows, hits = rows[:, shared], hits[:, shared]
    if not rows.size or rows.sum(axis=1).min() < MIN_ROWS:
        return None
    # Weights of Mantel and Haenszel: a class counts as far as both sides can be compared.
    weights = rows.prod(axis=0) / rows.sum(axis=0)
    weights = weights / weights.sum()
    shares = hits / rows
    if group is not None:
        effect = _difference_effect(labels == predicted, labels, is_long, shared, rows, shares, weights, group)
        rows, hits = rows / effect, hits / effect
    recall, shorter = (shares @ weights).tolist()
    centre = (hits + z**2 / 2) / (rows + z**2)
    half = z * np.sqrt(shares * (1 - shares) * rows + z**2 / 4) / (rows + z**2)
    below = ((shares - (centre - half)) * weights) ** 2
    above = ((centre + half - shares) * weights) ** 2
    difference = recall - shorter
    return LengthDecline(
        low=start,
        high=int(lengths.max()),
        rows=int(is_long.sum()),
        recall=recall,
        recall_of_shorter=shorter,
        difference=difference,
        difference_low=difference - float(np.sqrt(below[0].sum() + above[1].sum())),
        difference_high=difference + float(np.sqrt(above[0].sum() + below[1].sum())),
    )


def _difference_effect(
    right: np.ndarray,
    labels: np.ndarray,
    is_long: np.ndarray,
    shared: np.ndarray,
    rows: np.ndarray,
    shares: np.ndarray,
    weights: np.ndarray,
    group: np.ndarray,
) -> float:
    """Return the design effect of the difference of the recalls of long and of shorter sequences.

    `right`, `labels`, `is_long`, `group`: (N,). `shared`: (C,) bool, the K classes that are compared. `rows`, `shares`:
    (2, K) of long and of shorter sequences. `weights`: (K,).
    """
    counted = shared[labels]
    place, side = (np.cumsum(shared) - 1)[labels[counted]], (~is_long[counted]).astype(np.int64)
    share = weights[place] / rows[side, place]
    influence = (right[counted] - shares[side, place]) * share * np.where(side == 0, 1, -1)
    groups = int(group.max()) + 1
    by_side = np.bincount(group[counted] * 2 + side, share, groups * 2).reshape(groups, 2)
    # Both sides of a group may be hard or easy, independently of each other at worst.
    return design_effect(influence, share**2, group[counted], (by_side**2).sum(axis=1), WORST_OF_DIFFERENCE)
