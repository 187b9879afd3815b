"""Differences of two rankings of the same rows: intervals of average precision, and of recall at as many alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from seqclf.evaluation.intervals import CONFIDENCE, MAX_LEVELS, MAX_NUMBERS, draw_count, score_levels

TAIL = (1 - CONFIDENCE) / 2
# Weights in one ranking, summed by level: (R, L) weights of the positive rows, and (R, L) weights of the negative rows.
Weights = tuple[np.ndarray, np.ndarray]
TINY = 1e-12  # lower bound of divisors, far below the weight of any row
NEAR_ROWS = 25  # rows on each side of a threshold that estimate the fraction of positive rows at the threshold


def equal_alerts_influence(is_positive: np.ndarray, is_alert: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the influence (N,) of each row on the recall of the alerts less that of as many rows of top `score`."""
    order = np.argsort(-score, kind="stable")
    alerts, positives = int(is_alert.sum()), int(is_positive.sum())
    is_highest = np.zeros(len(score), bool)
    is_highest[order[:alerts]] = True
    # One more alert moves the threshold past one more row. The probability that this row is positive is estimated by
    # the fraction of positive rows near the threshold.
    around = order[max(0, alerts - NEAR_ROWS) : alerts + NEAR_ROWS]
    at_threshold = float(is_positive[around].mean())
    difference = is_alert.astype(np.float64) - is_highest
    mean = float(difference[is_positive].mean())
    return (is_positive * (difference - mean) - at_threshold * difference) / positives


def merged_levels(is_positive: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the level (N,) of each row, numbered from the highest score down. Rows on the same level count as ties."""
    level, count = score_levels(is_positive, score)
    return level * MAX_LEVELS // count if count > MAX_LEVELS else level


def weighted_limits(
    points: Sequence[float],
    is_positive: np.ndarray,
    levels: Sequence[np.ndarray],
    values: Callable[[Weights, Weights], tuple[np.ndarray, np.ndarray]],
    generator: np.random.Generator,
    effect: float,
    counts: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return the 95 % interval of the difference of a metric of two rankings, from random weights of the rows.

    `points`: metric of the model and of the baseline. `levels`: (N,) in each ranking. `values`: function from R draws
    of the weights to both metrics (R,). `effect`: design effect. `counts`: (N,) what each row counts, None for 1.
    """
    # A cell holds all rows with the same truth and with the same levels in both rankings. The weight of a cell is the
    # sum of the weights of its rows.
    cells, cell = np.unique(np.stack([~is_positive, *levels]), axis=1, return_inverse=True)
    counts = np.bincount(cell.reshape(-1), counts)
    positives = int((cells[0] == 0).sum())
    of_model, of_baseline = values(*_summed_by_level(counts[None].astype(np.float64), cells[1:], positives))
    # Merging levels changes the metric slightly. `shift` corrects the draws for this change.
    shift = points[0] - points[1] - float(of_model[0] - of_baseline[0])
    draws: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for size in _chunks(draw_count(len(counts)), len(counts)):
        for side, extra in ((0, -1), (1, 1)):
            weights = generator.standard_gamma(counts / effect, (size, len(counts)))
            # The extra row is positive. One model ranks the extra row first, and the other model does not find it.
            one_more = generator.standard_exponential(size)
            total = weights[:, :positives].sum(axis=1)
            of_model, of_baseline = values(*_summed_by_level(weights, cells[1:], positives))
            draws[side].append(((of_model - of_baseline + shift) * total + extra * one_more) / (total + one_more))
    low, high = np.concatenate(draws[0]), np.concatenate(draws[1])
    return float(np.quantile(low, TAIL)), float(np.quantile(high, 1 - TAIL))


def _chunks(draws: int, cells: int) -> Iterator[int]:
    """Yield sizes of chunks that add up to `draws`, each of which needs little memory."""
    most = max(1, MAX_NUMBERS // cells)
    for start in range(0, draws, most):
        yield min(most, draws - start)


def _summed_by_level(weights: np.ndarray, levels: np.ndarray, positives: int) -> tuple[Weights, Weights]:
    """Return the weights summed by level, for the ranking of the model and for that of the baseline.

    `weights`: (R, U) of U cells of rows with the same truth and levels. `levels`: (2, U). `positives`: number of cells
    with positive rows, which come first.
    """
    from scipy import sparse

    def summed(part: slice, level: np.ndarray) -> np.ndarray:
        cells = len(level[part])
        matrix = sparse.csr_matrix((np.ones(cells), (np.arange(cells), level[part])), (cells, int(level.max()) + 1))
        return np.asarray(weights[:, part] @ matrix)

    positive, negative = slice(0, positives), slice(positives, None)
    of_model, of_baseline = ((summed(positive, level), summed(negative, level)) for level in levels)
    return of_model, of_baseline


def average_precisions(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    def average_precision(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
        true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
        precision = true_alerts / np.maximum(true_alerts + false_alerts, TINY)
        return np.asarray((positives * precision).sum(axis=1) / np.maximum(true_alerts[:, -1], TINY))

    return average_precision(*model), average_precision(*baseline)


def recalls_at_alerts(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Return the recalls (R,) of both models. The alerts are the rows on the first level of the model's ranking."""
    alerts = model[0][:, :1] + model[1][:, :1]
    total = np.maximum(model[0].sum(axis=1), TINY)
    rows = baseline[0] + baseline[1]
    before = rows.cumsum(axis=1) - rows
    # `share`: fraction of the rows of each level that are alerts of the baseline. If several rows tie at the last rank,
    # each of these rows counts as the same fraction of an alert.
    share = np.clip((alerts - before) / np.maximum(rows, TINY), 0, 1)
    return model[0][:, 0] / total, (baseline[0] * share).sum(axis=1) / total
