"""Design effects: how many times fewer rows a score counts for because rows come in groups.

Rows of one group (stays of a patient, cards of a person, utterances of a speaker) are right or wrong together, so that
N rows in few groups tell less than N independent ones. An interval for such rows is that of independent rows, with
every count divided by a design effect f, which is estimated from the influence of each row on the score: the variance
of the influences summed by group, divided by that of single rows. Few groups tell little of that variance. The estimate
is therefore shrunk towards the design effect of groups whose rows are copies of each other, as if `WORST` more groups
had shown it. `tests/evaluation/test_grouped_rows.py` simulates the coverage.
"""

from __future__ import annotations

import numpy as np

WORST = 2.0  # groups in which rows are taken as copies of each other
WORST_OF_DIFFERENCE = 1.0  # the same for differences of two models, which are less alike within a group
MIN_KISH = 2.0  # effective groups from which on there is an interval
FEW_GROUPS = 5.0  # effective groups below which an interval says little


def group_codes(groups: np.ndarray | None) -> np.ndarray | None:
    """Return codes (N,) 0 … G - 1 of the keys `groups` (N,), None where each row stands alone."""
    if groups is None:
        return None
    distinct, group = np.unique(groups, return_inverse=True)
    return group if len(distinct) < len(groups) else None


def effective_groups(group: np.ndarray) -> float:
    """Kish's number of groups, (sum n)² / sum n², of the rows whose codes are `group` (N,). 0 without rows.

    >>> effective_groups(np.array([0, 0, 1, 1])), effective_groups(np.array([0, 0, 0, 1]))
    (2.0, 1.6)
    """
    rows = np.bincount(group).astype(np.float64)
    return float(rows.sum() ** 2 / (rows**2).sum()) if rows.any() else 0.0


def design_effect(
    influence: np.ndarray, square: np.ndarray, group: np.ndarray, copies: np.ndarray, worst: float = WORST
) -> float:
    """Return the design effect of a score, at least 1.

    `influence`: (N,) derivative of the score by the weight of each row. `square`: (N,) a_i², where a_i is the share of
    the score that row i decides. `group`: (N,) 0 … G - 1. `copies`: (G,) variance of each group, in units of that of
    one row, if its rows were copies of each other.
    """
    groups = len(copies)
    by_group, squares = np.bincount(group, influence, groups), np.bincount(group, square, groups)
    most = max(1.0, float(copies.sum() / squares.sum()))
    of_rows = float(influence @ influence)
    if of_rows < 1e-20 or (by_group**4).sum() < 1e-40:  # every row is right, or there is one group
        return most
    # A group with the share s of the squares also moves the mean, which takes 1 - s of its variance away.
    left = 1 - np.minimum(squares / squares.sum(), 0.999)
    seen_effect = max(1.0, float((by_group**2 / left).sum()) / of_rows)
    seen = float((by_group**2).sum() ** 2 / (by_group**4).sum())  # groups that make up the variance
    return (seen * seen_effect + worst * max(seen_effect, most)) / (seen + worst)


def mean_effect(
    values: np.ndarray, group: np.ndarray | None, rows: np.ndarray | None = None, worst: float = WORST
) -> float:
    """Return the design effect of the mean of `values` (N,), as of hits, over the rows where `rows` (N,) is true.

    `group`: (N,) codes, None where each row stands alone. `rows`: None for all. Other rows of a group might have been
    among them, as any row may become a false alarm.

    >>> hits, group = np.repeat([1, 1, 1, 0], 5), np.repeat(np.arange(4), 5)
    >>> mean_effect(hits, None), round(mean_effect(hits, group), 1)
    (1.0, 6.7)
    """
    return mean_of_classes_effect(values, np.zeros(len(values), np.int64), group, rows, worst)


def mean_of_classes_effect(
    values: np.ndarray,
    classes: np.ndarray,
    group: np.ndarray | None,
    rows: np.ndarray | None = None,
    worst: float = WORST,
) -> float:
    """Return the design effect of the mean over classes of the mean of `values` (N,) by class, as of macro recall.

    `values`: hits, or differences of the hits of two models. `classes`: (N,) class numbers. `group`, `rows`: see
    `mean_effect`.
    """
    if group is None:
        return 1.0
    size = np.bincount(group)
    if rows is not None:
        values, classes = values[rows], classes[rows]
    in_group = group if rows is None else group[rows]
    counts = np.bincount(classes)
    share = 1 / counts[classes]
    mean = np.bincount(classes, values) / np.maximum(counts, 1)
    of_group = np.bincount(in_group, share, len(size))
    copies = of_group**2  # the classes of a group may be hard together
    if rows is not None:
        copies = _with_bursts(copies, of_group, size, share)
    return design_effect((values - mean[classes]) * share, share**2, in_group, copies, worst)


def macro_f1_effect(labels: np.ndarray, predicted: np.ndarray, classes: int, group: np.ndarray) -> float:
    """Return the design effect of macro F1. `labels`, `predicted`: (N,) class numbers."""
    rows = np.bincount(labels, minlength=classes) + np.bincount(predicted, minlength=classes)
    hits = labels == predicted
    f1 = 2 * np.bincount(labels[hits], minlength=classes) / np.maximum(rows, 1)
    of_label, of_predicted = 1 / rows[labels], 1 / rows[predicted]
    influence = 2 * hits * of_label - f1[labels] * of_label - f1[predicted] * of_predicted
    share = of_label + of_predicted
    of_group = np.bincount(group, share)
    return design_effect(influence, share**2, group, _with_bursts(of_group**2, of_group, np.bincount(group), share))


def _with_bursts(copies: np.ndarray, of_group: np.ndarray, size: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the variance (G,) of groups whose rows may all become false alarms of a rare class.

    A burst is as large as a group, `size` (G,), not as its rows that were seen, whose shares sum to `of_group` (G,).
    """
    return np.maximum(copies, of_group * size * np.sqrt((share**2).mean()))


def ranking_effect(
    influence: np.ndarray, is_positive: np.ndarray, group: np.ndarray | None, worst: float = WORST
) -> float:
    """Return the design effect of AUROC or average precision, whose `influence` is (N,), or of their difference."""
    if group is None:
        return 1.0
    share = np.where(is_positive, 1 / max(1, is_positive.sum()), 1 / max(1, (~is_positive).sum()))
    groups = group.max() + 1
    by_class = np.bincount(group * 2 + is_positive, share, groups * 2).reshape(groups, 2)
    # Positive and negative rows of a group have an effect each, which moves the score in opposite directions.
    return design_effect(influence, share**2, group, (by_class**2).sum(axis=1), worst)


def auroc_influence(is_positive: np.ndarray, score: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the AUROC of `score` (N,) and the influence (N,) of each row on it. Ties count half."""
    levels, level = np.unique(-score, return_inverse=True)
    positives = np.bincount(level, is_positive, len(levels))
    negatives = np.bincount(level, ~is_positive, len(levels))
    positive_count, negative_count = positives.sum(), negatives.sum()
    below = (negative_count - (negatives.cumsum() - negatives / 2)) / negative_count
    above = (positives.cumsum() - positives / 2) / positive_count
    right = np.where(is_positive, below[level], above[level])  # share of the other class on the right side of each row
    auroc = float(right[is_positive].mean())
    return auroc, (right - auroc) * np.where(is_positive, 1 / positive_count, 1 / negative_count)


def average_precision_influence(is_positive: np.ndarray, score: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the average precision of `score` (N,) and the influence (N,) of each row on it. Ties share their mean."""
    levels, level = np.unique(-score, return_inverse=True)
    positives = np.bincount(level, is_positive, len(levels))
    hits, alerts = positives.cumsum(), np.bincount(level, minlength=len(levels)).cumsum()
    precision = hits / alerts
    value = float((positives * precision).sum() / hits[-1])
    helped = (positives / alerts)[::-1].cumsum()[::-1]
    diluted = (positives * hits / alerts**2)[::-1].cumsum()[::-1]
    gain = is_positive * (precision[level] - value + helped[level])
    return value, (gain - diluted[level]) / hits[-1]
