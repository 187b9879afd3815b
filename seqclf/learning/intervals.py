"""How far scores would move on another test set of the same kind: bootstrap intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqclf.learning.scores import confusion_matrix

RESAMPLES = 1000
CONFIDENCE = 0.95
MOST_GROUPS = 2000


def bootstrap(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    seed: int = 0,
) -> dict[str, Any]:
    """`CONFIDENCE` percentile intervals [low, high] over `RESAMPLES` draws of the rows with replacement.

    What follows from the confusion matrix is drawn as its cells, which is the same and takes no time. Ranks are drawn
    as groups of rows of neighbouring scores, one per distinct score where there are at most `MOST_GROUPS`.
    """
    generator = np.random.default_rng(seed)
    confusion = confusion_matrix(labels.astype(np.int64), predicted, len(classes))
    truth_of, decided = np.nonzero(confusion)
    cells = confusion[truth_of, decided]
    drawn = generator.multinomial(len(labels), cells / cells.sum(), size=RESAMPLES)

    def counted(by: np.ndarray, kept: np.ndarray | slice = slice(None)) -> np.ndarray:
        return np.stack([np.bincount(by[kept], own[kept], len(classes)) for own in drawn])

    right, support, chosen = counted(truth_of, truth_of == decided), counted(truth_of), counted(decided)
    by_class = {
        "recall": right / np.maximum(support, 1),
        "precision": right / np.maximum(chosen, 1),
        "f1": 2 * right / np.maximum(support + chosen, 1),
    }
    seen = np.maximum((support + chosen > 0).sum(axis=1), 1)
    found: dict[str, Any] = {"accuracy": _interval(right.sum(axis=1) / len(labels))}
    found |= {name: _interval(values.sum(axis=1) / seen) for name, values in by_class.items()}
    found["recall_by_class"] = {
        label: _interval(by_class["recall"][support[:, code] > 0, code])
        for code, label in enumerate(classes)
        if confusion[code].any()
    }
    if positive is not None:
        index = classes.index(positive)
        truth = labels == index
        block = {name: _interval(values[:, index]) for name, values in by_class.items()}
        if truth.any() and not truth.all():
            block |= _rank_intervals(truth, probabilities[:, index], generator)
        found["positive"] = block
    return found


def _rank_intervals(truth: np.ndarray, score: np.ndarray, generator: np.random.Generator) -> dict[str, list[float]]:
    order = np.argsort(-score, kind="stable")
    _, group = np.unique(-score[order], return_inverse=True)  # descending scores, from 0
    count = int(group[-1]) + 1
    exact = _ranks(_cells(truth[order], group, count)[None])
    if count > MOST_GROUPS:
        group = group * MOST_GROUPS // count
        count = MOST_GROUPS
    cells = _cells(truth[order], group, count)
    coarse = _ranks(cells[None])
    drawn = generator.multinomial(len(truth), (cells / cells.sum()).ravel(), size=RESAMPLES)
    values = _ranks(drawn.reshape(RESAMPLES, 2, count).astype(np.float64))
    return {name: _interval(own + exact[name] - coarse[name]) for name, own in values.items()}


def _cells(truth: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """(2, G): rows of each group that are not and that are `truth`."""
    return np.stack([np.bincount(group[truth == side], minlength=count) for side in (False, True)]).astype(np.float64)


def _ranks(cells: np.ndarray) -> dict[str, np.ndarray]:
    """Average precision and AUROC (R,) of (R, 2, G) counts, groups by descending score; rows of a group are ties."""
    wrong, right = cells[:, 0], cells[:, 1]
    found, alarms = right.cumsum(axis=1), wrong.cumsum(axis=1)
    total, others = np.maximum(found[:, -1:], 1), np.maximum(alarms[:, -1:], 1)
    precision = found / np.maximum(found + alarms, 1)
    above = (wrong * (found - right / 2)).sum(axis=1)
    return {
        "average_precision": (right * precision / total).sum(axis=1),
        "auroc": above / (total * others)[:, 0],
    }


def _interval(values: np.ndarray) -> list[float]:
    rest = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values, [rest, 100 - rest])
    return [float(low), float(high)]
