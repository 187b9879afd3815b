"""Between which values a score of the whole population lies, judging by a test set: exact or bootstrap intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqclf.learning.scores import confusion_matrix, ranked_cells, ranks_of

RESAMPLES = 1000
CONFIDENCE = 0.95
FEW_RESAMPLES = 200  # where there are more than `MANY_CELLS` in the confusion matrix
MANY_CELLS = 20_000
MOST_GROUPS = 2000
SAME = 1e-12


def score_intervals(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    seed: int = 0,
) -> dict[str, Any]:
    """Intervals [low, high] of `CONFIDENCE`.

    Of shares of rows (accuracy, recall and precision of a class) the exact ones of Clopper and Pearson; of all else
    percentiles of `RESAMPLES` draws of the rows with replacement. What follows from the confusion matrix is drawn as
    its cells, which is the same and takes less time. Draws in which a score is not defined do not count for it; one
    that is defined in none, or the same in all (no row went wrong), has no interval.
    """
    generator = np.random.default_rng(seed)
    confusion = confusion_matrix(labels.astype(np.int64), predicted, len(classes))
    truth_of, decided = np.nonzero(confusion)
    cells = confusion[truth_of, decided]
    shares, hits = cells / cells.sum(), truth_of == decided
    count = RESAMPLES if len(cells) <= MANY_CELLS else FEW_RESAMPLES
    right, support, chosen = np.zeros((3, count, len(classes)))
    for place in range(count):
        drawn = generator.multinomial(len(labels), shares)
        right[place] = np.bincount(truth_of[hits], drawn[hits], len(classes))
        support[place] = np.bincount(truth_of, drawn, len(classes))
        chosen[place] = np.bincount(decided, drawn, len(classes))
    by_class = {
        "recall": _ratio(right, support),
        "precision": _ratio(right, chosen),
        "f1": _ratio(2 * right, support + chosen),
    }
    seen = support + chosen > 0
    hit, rows, alerts = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    found: dict[str, Any] = {"accuracy": _share_interval(hit.sum(), len(labels))}
    for name, values in by_class.items():
        found[name] = _interval(np.where(seen, np.nan_to_num(values), 0.0).sum(axis=1) / seen.sum(axis=1))
    found["recall_by_class"] = {
        label: _share_interval(hit[code], rows[code]) for code, label in enumerate(classes) if rows[code]
    }
    if positive is not None:
        index = classes.index(positive)
        truth = labels == index
        block = {
            "recall": _share_interval(hit[index], rows[index]),
            "precision": _share_interval(hit[index], alerts[index]),
            "f1": _interval(by_class["f1"][:, index]),
        }
        if truth.any() and not truth.all():
            block |= _rank_intervals(truth, probabilities[:, index], generator)
        found["positive"] = block
    return found


def _rank_intervals(
    truth: np.ndarray, score: np.ndarray, generator: np.random.Generator
) -> dict[str, list[float] | None]:
    """Ranks hang on how many other rows lie between the scores of `truth`, and beside them: those counts are drawn."""
    levels = np.unique(score[truth])
    # Descending: above the highest level, at it, between it and the next, …
    below = np.searchsorted(levels, score, side="left")
    at = levels[np.minimum(below, len(levels) - 1)] == score
    group = 2 * (len(levels) - below) - at
    count = 2 * len(levels) + 1
    exact = ranks_of(ranked_cells(truth, group, count)[None])
    if count > MOST_GROUPS:
        group = group * MOST_GROUPS // count
        count = MOST_GROUPS
    cells = ranked_cells(truth, group, count)
    coarse = ranks_of(cells[None])
    shares = (cells / cells.sum()).ravel()
    drawn = [
        ranks_of(generator.multinomial(len(truth), shares).reshape(1, 2, count).astype(np.float64))
        for _ in range(RESAMPLES)
    ]
    values = {name: np.concatenate([one[name] for one in drawn]) for name in exact}
    return {name: _interval(np.clip(own + exact[name] - coarse[name], 0, 1)) for name, own in values.items()}


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to be a part of."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _interval(values: np.ndarray) -> list[float] | None:
    """None where the draws tell nothing: there are none, or they are all the same."""
    known = values[~np.isnan(values)]
    if not len(known) or np.ptp(known) < SAME:
        return None
    rest = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known, [rest, 100 - rest])
    return [float(low), float(high)]


def _share_interval(count: int, rows: int) -> list[float] | None:
    """Of the share `count` of `rows` (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    if not rows:
        return None
    rest = (1 - CONFIDENCE) / 2
    low = beta.ppf(rest, count, rows - count + 1) if count else 0.0
    high = beta.ppf(1 - rest, count + 1, rows - count) if count < rows else 1.0
    return [float(low), float(high)]
