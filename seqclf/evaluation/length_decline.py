"""Comparison of the recall of long sequences with the recall of shorter sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.design_effect import WORST_OF_DIFFERENCE, design_effect
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95  # probability that no range is reported if recall does not depend on the length
MIN_ROWS = 20  # minimum number of rows on each side of a comparison


@dataclass(frozen=True, kw_only=True)
class LengthDecline(JsonResult):
    """A range of the longest sequences, which have a lower recall than shorter sequences.

    `low`, `high`: smallest and largest number of tokens in the range. `rows`: number of sequences in the range.
    `recall`: mean recall of the sequences in the range. `recall_of_shorter`: mean recall of shorter sequences. Both
    means use the classes that occur among long and among shorter sequences, with the same class weights. `difference`:
    `recall` minus `recall_of_shorter`, a negative number. `difference_low`, `difference_high`: one-sided confidence
    limits of the difference. Each limit holds with a confidence of 95 % for all compared ranges together.
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
    """Return the range of the longest sequences with the most significant decline in recall, or None without a decline.

    A range starts at the beginning of a length bucket (any bucket except the first), and ends at the longest sequence.
    The sequences in a range are compared with all shorter sequences. Recalls are compared class by class, so a class of
    long sequences that is hard to predict does not look like a decline. For grouped rows, all counts are divided by a
    design effect.

    Args:
        labels, predicted: (N,) class numbers.
        lengths: (N,) lengths of the sequences in tokens.
        buckets: ranges of lengths, both ends included, from short to long (see `slices.length_buckets`).
        only: number of the only class to compare, None to compare all classes.
        group: (N,) code of each row's group, None if the rows are independent.

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
    # The test is one-sided, because only a decline is reported. Bonferroni's correction is applied, because several
    # ranges are tested.
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
    """Compare the recall of rows that have at least `start` tokens with the recall of shorter rows.

    Returns None if too few rows belong to classes that have both long and shorter sequences.
    """
    is_long = lengths >= start
    classes = int(labels.max()) + 1
    rows, hits = (
        np.stack([np.bincount(labels[side & chosen], minlength=classes) for side in (is_long, ~is_long)]).astype(float)
        for chosen in (np.ones(len(labels), bool), labels == predicted)
    )  # both arrays are (2, C): first the counts of long sequences, then the counts of shorter sequences
    shared = np.asarray((rows > 0).all(axis=0))
    if only is not None:
        shared &= np.arange(classes) == only
    rows, hits = rows[:, shared], hits[:, shared]
    if not rows.size or rows.sum(axis=1).min() < MIN_ROWS:
        return None
    # Mantel-Haenszel weights give a small weight to a class with few long or few shorter sequences.
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
    """Return the design effect of the difference between the recalls of long and of shorter sequences.

    `right`: (N,) bool, True for correct predictions. `labels`: (N,) class numbers. `group`: (N,) code of each row's
    group. `is_long`: (N,) bool, True for long sequences. `shared`: (C,) bool, True for the K classes that are compared.
    `rows`, `shares`: (2, K) number of rows and recall of each class, first for long sequences, then for shorter
    sequences. `weights`: (K,) weights of the classes.
    """
    counted = shared[labels]
    place, side = (np.cumsum(shared) - 1)[labels[counted]], (~is_long[counted]).astype(np.int64)
    share = weights[place] / rows[side, place]
    influence = (right[counted] - shares[side, place]) * share * np.where(side == 0, 1, -1)
    groups = int(group.max()) + 1
    by_side = np.bincount(group[counted] * 2 + side, share, groups * 2).reshape(groups, 2)
    # In the worst case, the long sequences of a group are hard or easy independently of its shorter sequences.
    return design_effect(influence, share**2, group[counted], (by_side**2).sum(axis=1), WORST_OF_DIFFERENCE)
