"""The order-blind baseline: how far a scikit-learn model gets that knows which steps occur, but not in which order.

A sequence model has to beat it to earn its keep.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.storage.ragged import Ragged, Split, sample_split

MOST_STEPS = 8_000_000  # of train that the baseline is fit on; of more, as many rows as fit, drawn at random
SMALL = 5_000  # rows that one thread fits sooner: waiting for each other costs more, and on busy cores very much more
MOST_BAGGED = 200  # values of a category that the trees count


class Baseline(NamedTuple):
    """`name` of the model that did best on validation, and (N, C) probabilities of each split other than train, by
    model. Rows are those of the splits given."""

    name: str
    probabilities: dict[str, dict[str, np.ndarray]]


def fit_baseline(
    splits: Mapping[str, Split], fields: Sequence[Mapping[str, Any]], num_classes: int, seed: int = 0
) -> Baseline:
    """Fit logistic regression and gradient boosting on bags of categories and pooled statistics of numbers.

    `fields`: the encoders' specs. The better loss on validation names the baseline.
    """
    train = sample_split(splits["train"], MOST_STEPS, seed)
    others = {name: split for name, split in splits.items() if name != "train"}
    sizes = {field["name"]: field["size"] for field in fields if field["kind"] == "category"}
    numbers = [field["name"] for field in fields if field["kind"] == "number"]
    found: dict[str, dict[str, np.ndarray]] = {}
    from threadpoolctl import threadpool_limits

    threads = 1 if len(train.labels) < SMALL else None
    with warnings.catch_warnings(), threadpool_limits(threads):
        warnings.simplefilter("ignore")  # of convergence: the scores say how good it is
        for name, fit in (("logistic regression", _fit_logistic), ("gradient boosting", _fit_boosting)):
            predict = fit(train, sizes, numbers, seed)
            found[name] = {split: _of_all_classes(predict(own.sequences), num_classes) for split, own in others.items()}
    labels = splits["validation"].labels if "validation" in splits else next(iter(others.values())).labels
    chosen = "validation" if "validation" in others else next(iter(others))
    return Baseline(min(found, key=lambda name: _loss(labels, found[name][chosen])), found)


def _fit_logistic(train: Split, sizes: Mapping[str, int], numbers: Sequence[str], seed: int) -> Any:
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler, normalize

    scaler = StandardScaler()

    def features(sequences: Ragged, fit: bool = False) -> Any:
        pooled = _pooled(sequences, numbers)
        pooled = scaler.fit_transform(pooled) if fit else scaler.transform(pooled)
        parts = [sparse.csr_matrix(np.clip(pooled, -10, 10))]
        for name, size in sizes.items():
            bag = _bag(sequences, name, size)
            bag.data = 1 + np.log(bag.data)
            parts.append(normalize(bag) * np.sqrt(10))  # about as long as the other features, so that C suits both
        return sparse.hstack(parts).tocsr()

    model = LogisticRegression(C=3.0, max_iter=300, random_state=seed).fit(
        features(train.sequences, True), train.labels
    )
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _fit_boosting(train: Split, sizes: Mapping[str, int], numbers: Sequence[str], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # The most frequent values; ids are given in that order.
    kept = {name: min(size, MOST_BAGGED) for name, size in sizes.items()}

    def features(sequences: Ragged) -> np.ndarray:
        bags = [_bag(sequences, name, sizes[name])[:, : kept[name]].toarray() for name in sizes]
        return np.concatenate([_pooled(sequences, numbers), *bags], axis=1).astype(np.float32)

    rounds = min(100, max(30, 600 // len(np.unique(train.labels))))  # each grows a tree per class
    model = HistGradientBoostingClassifier(
        max_iter=rounds, learning_rate=0.1, max_leaf_nodes=15, early_stopping=False, random_state=seed
    ).fit(features(train.sequences), train.labels)
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _pooled(sequences: Ragged, numbers: Sequence[str]) -> np.ndarray:
    """(N, features): the log length, and mean, deviation, smallest and largest value of each channel."""
    lengths = sequences.lengths
    columns = [np.log(lengths)[:, None]]
    starts = sequences.offsets[:-1]
    for name in numbers:
        values = np.asarray(sequences.fields[name], np.float64)
        mean = np.add.reduceat(values, starts) / lengths[:, None]
        square = np.add.reduceat(values**2, starts) / lengths[:, None]
        columns += [mean, np.sqrt(np.maximum(0, square - mean**2))]
        columns += [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)]
    return np.concatenate(columns, axis=1)


def _bag(sequences: Ragged, name: str, size: int) -> Any:
    """(N, size) sparse counts of each id."""
    from scipy import sparse

    ids = np.array(sequences.fields[name])  # a copy: the counts are sorted in place
    counts = sparse.csr_matrix(
        (np.ones(len(ids), np.float32), ids, np.array(sequences.offsets)), (len(sequences), size)
    )
    counts.sum_duplicates()
    return counts


def _of_all_classes(predicted: tuple[np.ndarray, np.ndarray], num_classes: int) -> np.ndarray:
    """Probabilities of the classes that were in train → (N, num_classes)."""
    probabilities, known = predicted
    spread = np.zeros((len(probabilities), num_classes))
    spread[:, known] = probabilities
    return spread


def _loss(labels: np.ndarray, probabilities: np.ndarray) -> float:
    return float(-np.log(np.clip(probabilities[np.arange(len(labels)), labels], 1e-12, None)).mean())
