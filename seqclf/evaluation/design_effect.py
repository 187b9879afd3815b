"""Design effects: how many grouped rows are worth one independent row.

Rows of one group, such as the stays of a patient or the cards of a person, tend to be right or wrong together. The
interval of a score on grouped rows is computed as for independent rows, but every count is divided by the design effect
f: the variance of the influences of rows (derivatives of the score by the weight of the row) summed by group, divided
by that of single rows. With few groups, this estimate is shrunk towards a worst case, in which all rows of a group are
copies, as if `WORST` more such groups had been observed. `tests/evaluation/test_grouped_rows.py` simulates the
coverage.
"""

from __future__ import annotations

import numpy as np

WORST = 2.0  # number of added worst-case groups, in which all rows are copies of each other
# Number of added worst-case groups for a difference of two models, which varies less within a group.
WORST_OF_DIFFERENCE = 1.0
MIN_KISH = 2.0  # an interval needs at least this effective number of groups
FEW_GROUPS = 5.0  # below this effective number of groups, an interval is unreliable


def group_codes(groups: np.ndarray | None) -> np.ndarray | None:
    """Return group codes (N,) from 0 to G - 1 for the group keys `groups` (N,), or None if all keys are different."""
    if groups is None:
        return None
    distinct, group = np.unique(groups, return_inverse=True)
    return group if len(distinct) < len(groups) else None


def effective_groups(group: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return Kish's effective number of groups, (sum n)² / sum n² for groups of n rows, or 0 without rows.

    `group`: (N,) code of each row's group. `weights`: (N,) of the rows, None for equal ones.

    >>> effective_groups(np.array([0, 0, 1, 1])), effective_groups(np.array([0, 0, 0, 1]))
    (2.0, 1.6)
    """
    rows = np.bincount(group, weights).astype(np.float64)
    return float(rows.sum() ** 2 / (rows**2).sum()) if rows.any() else 0.0


def design_effect(
    influence: np.ndarray, square: np.ndarray, group: np.ndarray, copies: np.ndarray, worst: float = WORST
) -> float:
    """Return the design effect of a score, at least 1.

    `influence`: (N,) derivative of the score by the weight of each row. `square`: (N,) squares a_i², where a_i is the
    fraction of the score that depends on row i. `group`: (N,) codes 0 … G - 1. `copies`: (G,) variance that each group
    would have if its rows were copies, in units of the variance of one row.
    """
    groups = len(copies)
    by_group, squares = np.bincount(group, influence, groups), np.bincount(group, square, groups)
    most = max(1.0, float(copies.sum() / squares.sum()))
    of_rows = float(influence @ influence)
    if of_rows < 1e-20 or (by_group**4).sum() < 1e-40:  # all rows are right, or there is only one group
        return most
    # A group with the fraction s of the squares also shifts the mean itself, so only 1 - s of the variance of the group
    # is observed.
    left = 1 - np.minimum(squares / squares.sum(), 0.999)
    seen_effect = max(1.0, float((by_group**2 / left).sum()) / of_rows)
    # Effective number of groups from which the variance is estimated.
    seen = float((by_group**2).sum() ** 2 / (by_group**4).sum())
    return (seen * seen_effect + worst * max(seen_effect, most)) / (seen + worst)


def or_ones(weights: np.ndarray | None, rows: int) -> np.ndarray:
    """Return the weights (N,) of N rows, ones if all rows count equally.

    >>> or_ones(None, 2).tolist()
    [1.0, 1.0]
    """
    return np.ones(rows) if weights is None else weights


def or_one(totals: np.ndarray) -> np.ndarray:
    """Return totals to divide by: 1 in place of 0, of which every part is 0 too."""
    return np.where(totals > 0, totals, 1)


def class_shares(classes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the share (N,) of each row in the weight of its class. `classes`: (N,) class numbers.

    >>> class_shares(np.array([0, 1, 1]), np.array([5.0, 1.0, 3.0])).tolist()
    [1.0, 0.25, 0.75]
    """
    weights = or_ones(weights, len(classes))
    return weights / or_one(np.bincount(classes, weights))[classes]


def kish_weights(weights: np.ndarray | None, codes: np.ndarray) -> np.ndarray | None:
    """Return weights (N,) that sum in each class to Kish's effective number of its rows, (sum w)² / sum w².

    `codes`: (N,) class of each row.
    """
    if weights is None:
        return None
    sums, squares = np.bincount(codes, weights), np.bincount(codes, weights**2)
    return weights * (sums / or_one(squares))[codes]


def mean_effect(
    values: np.ndarray,
    group: np.ndarray | None,
    rows: np.ndarray | None = None,
    worst: float = WORST,
    weights: np.ndarray | None = None,
) -> float:
    """Return the design effect of the mean of `values` (N,), such as hits, over the rows that `rows` selects.

    `group`: (N,) codes, None if rows are independent. `rows`: (N,) bool or None. If it selects alerts, the effect
    allows for other rows of a group that might have become alerts as well.

    >>> hits, group = np.repeat([1, 1, 1, 0], 5), np.repeat(np.arange(4), 5)
    >>> mean_effect(hits, None), round(mean_effect(hits, group), 1)
    (1.0, 6.7)
    """
    return mean_of_classes_effect(values, np.zeros(len(values), np.int64), group, rows, worst, weights)


def mean_of_classes_effect(
    values: np.ndarray,
    classes: np.ndarray,
    group: np.ndarray | None,
    rows: np.ndarray | None = None,
    worst: float = WORST,
    weights: np.ndarray | None = None,
) -> float:
    """Return the design effect of a mean over classes of their mean `values`, such as macro recall.

    It is that of groups alone: the effect of `weights` (N,) of the rows is in `kish_weights`.

    `values`: (N,) hits, or differences between the hits of two models. `classes`: (N,). `group`, `rows`: as in
    `mean_effect`.
    """
    if group is None:
        return 1.0
    size = np.bincount(group)
    weights = or_ones(weights, len(values))
    if rows is not None:
        values, classes, weights = values[rows], classes[rows], weights[rows]
    in_group = group if rows is None else group[rows]
    share = class_shares(classes, weights)
    mean = np.bincount(classes, values * weights) / or_one(np.bincount(classes, weights))
    of_group = np.bincount(in_group, share, len(size))
    copies = of_group**2  # in the worst case, rows of different classes in a group are hard to predict at the same time
    if rows is not None:
        copies = _with_bursts(copies, of_group, size, share)
    return design_effect((values - mean[classes]) * share, share**2, in_group, copies, worst)


def macro_f1_effect(
    labels: np.ndarray, predicted: np.ndarray, classes: int, group: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Return the design effect of macro F1. `labels`, `predicted`: (N,) class numbers."""
    weights = or_ones(weights, len(labels))
    rows = or_one(np.bincount(labels, weights, classes) + np.bincount(predicted, weights, classes))
    hits = labels == predicted
    f1 = 2 * np.bincount(labels[hits], weights[hits], classes) / rows
    of_label, of_predicted = weights / rows[labels], weights / rows[predicted]
    influence = 2 * hits * of_label - f1[labels] * of_label - f1[predicted] * of_predicted
    share = of_label + of_predicted
    of_group = np.bincount(group, share)
    return design_effect(influence, share**2, group, _with_bursts(of_group**2, of_group, np.bincount(group), share))


def _with_bursts(copies: np.ndarray, of_group: np.ndarray, size: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the variance (G,) of each group if all of its rows may become false alarms of a rare class.

    `size`: (G,) rows of each group. `of_group`: (G,) sum of `share`, the fraction of the score that each row decides.
    """
    return np.maximum(copies, of_group * size * np.sqrt((share**2).mean()))


def ranking_effect(
    influence: np.ndarray,
    is_positive: np.ndarray,
    group: np.ndarray | None,
    worst: float = WORST,
    weights: np.ndarray | None = None,
) -> float:
    """Return the design effect of AUROC or average precision, or of the difference of such a metric of two models.

    `influence`: (N,) of each row on it.
    """
    if group is None:
        return 1.0
    share = class_shares(is_positive.astype(np.int64), weights)
    groups = group.max() + 1
    by_class = np.bincount(group * 2 + is_positive, share, groups * 2).reshape(groups, 2)
    # The positive rows and the negative rows of a group have separate effects on the score, in opposite directions.
    return design_effect(influence, share**2, group, (by_class**2).sum(axis=1), worst)


def auroc_influence(
    is_positive: np.ndarray, score: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the AUROC of `score` (N,) and the influence (N,) of each row. A pair of equal scores counts half."""
    levels, level = np.unique(-score, return_inverse=True)
    weights = or_ones(weights, len(score))
    positives = np.bincount(level, is_positive * weights, len(levels))
    negatives = np.bincount(level, ~is_positive * weights, len(levels))
    positive_count, negative_count = positives.sum(), negatives.sum()
    below = (negative_count - (negatives.cumsum() - negatives / 2)) / negative_count
    above = (positives.cumsum() - positives / 2) / positive_count
    # `right`: for each row, the fraction of rows of the other class that are ranked correctly relative to the row.
    right = np.where(is_positive, below[level], above[level])
    auroc = float(right[is_positive] @ weights[is_positive] / positive_count)
    return auroc, (right - auroc) * weights * np.where(is_positive, 1 / positive_count, 1 / negative_count)


def average_precision_influence(
    is_positive: np.ndarray, score: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the average precision of `score` (N,) and the influence (N,) of each row. Ties have one precision."""
    levels, level = np.unique(-score, return_inverse=True)
    weights = or_ones(weights, len(score))
    positives = np.bincount(level, is_positive * weights, len(levels))
    hits, alerts = positives.cumsum(), np.bincount(level, weights, len(levels)).cumsum()
    alerts = or_one(alerts)  # the first rows may have no weight
    precision = hits / alerts
    value = float((positives * precision).sum() / hits[-1])
    helped = (positives / alerts)[::-1].cumsum()[::-1]
    diluted = (positives * hits / alerts**2)[::-1].cumsum()[::-1]
    gain = is_positive * (precision[level] - value + helped[level])
    return value, (gain - diluted[level]) * weights / hits[-1]
