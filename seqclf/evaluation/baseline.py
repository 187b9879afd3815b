"""The order-blind baseline: scikit-learn models that see the tokens of a sequence, but not their order.

A sequence model that does not beat it has learned nothing from the order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seqclf.data.field_spec import TokenSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split, sample_split
from seqclf.system import progress

MAX_FITTED_TOKENS = 8_000_000  # training tokens to fit on; larger splits are sampled by whole rows
SINGLE_THREAD_ROWS = 5_000  # below this, threads cost more than they save, and on busy cores very much more
MAX_BOOSTED_CATEGORIES = 200  # most frequent values of a category field that gradient boosting counts
NUMBER_CLIP = 10.0  # standard deviations
BAG_NORM = np.sqrt(10)  # gives bags about the norm of the pooled numbers, so that one C suits both

Predictor = Callable[[Ragged], tuple[np.ndarray, np.ndarray]]  # sequences → probabilities (N, K), class codes (K,)


def fit_baseline(
    splits: Mapping[str, Split], fields: Sequence[TokenSpec], num_classes: int, seed: int = 0
) -> dict[str, dict[str, np.ndarray]]:
    """Fit logistic regression and gradient boosting on category counts and pooled numbers.

    Returns `probabilities[model][split]`, (N, C), for each split other than train. `splits`: train and at least one
    other. `fields`: specs of the encoders.

    >>> import pyarrow as pa
    >>> rows = np.arange(8)
    >>> sequences = Ragged(offsets=np.arange(0, 17, 2), fields={"token": np.array([1, 2, 2, 2] * 4)})
    >>> split = Split(sequences, labels=rows % 2, ids=pa.array(rows.astype(str)), row_numbers=rows)
    >>> fields = [{"name": "token", "kind": "category", "size": 3}]
    >>> probabilities = fit_baseline({"train": split, "test": split}, fields, num_classes=2)
    >>> probabilities["logistic regression"]["test"].argmax(axis=1)
    array([0, 1, 0, 1, 0, 1, 0, 1])
    """
    from threadpoolctl import threadpool_limits

    # A bag has room for its largest set in every token.
    bags = [field["name"] for field in fields if field["kind"] == "bag"]
    widest = max([1, *(splits["train"].sequences.fields[name].shape[1] for name in bags)])
    train = sample_split(splits["train"], MAX_FITTED_TOKENS // widest, seed)
    other_splits = {name: split for name, split in splits.items() if name != "train"}
    category_sizes = {field["name"]: field["size"] for field in fields if field["kind"] != "number"}
    number_fields = [field["name"] for field in fields if field["kind"] == "number"]
    probabilities: dict[str, dict[str, np.ndarray]] = {}
    threads = 1 if len(train.labels) < SINGLE_THREAD_ROWS else None
    with warnings.catch_warnings(), threadpool_limits(threads):
        warnings.simplefilter("ignore")  # a model that has not converged is still a baseline; its scores say how good
        for name, fit in (("logistic regression", _fit_logistic), ("gradient boosting", _fit_boosting)):
            with progress.stage(f"order-blind baseline: {name}"):
                predict = fit(train, category_sizes, number_fields, seed)
                probabilities[name] = {
                    split_name: _spread_over_classes(*predict(split.sequences), num_classes)
                    for split_name, split in other_splits.items()
                }
    return probabilities


def _fit_logistic(
    train: Split, category_sizes: Mapping[str, int], number_fields: Sequence[str], seed: int
) -> Predictor:
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler, normalize

    scaler = StandardScaler().fit(_pooled_numbers(train.sequences, number_fields))

    def features(sequences: Ragged) -> Any:
        pooled = scaler.transform(_pooled_numbers(sequences, number_fields))
        parts = [sparse.csr_matrix(np.clip(pooled, -NUMBER_CLIP, NUMBER_CLIP))]
        for name, size in category_sizes.items():
            counts = _category_counts(sequences, name, size)
            counts.data = 1 + np.log(counts.data)
            parts.append(normalize(counts) * BAG_NORM)
        return sparse.hstack(parts).tocsr()

    model = LogisticRegression(C=3.0, max_iter=300, random_state=seed)
    model.fit(features(train.sequences), train.labels)
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _fit_boosting(
    train: Split, category_sizes: Mapping[str, int], number_fields: Sequence[str], seed: int
) -> Predictor:
    from sklearn.ensemble import HistGradientBoostingClassifier

    def features(sequences: Ragged) -> np.ndarray:
        # Vocabularies number their values by falling frequency, so the first columns are the most frequent ones.
        bags = [
            _category_counts(sequences, name, size)[:, :MAX_BOOSTED_CATEGORIES].toarray()
            for name, size in category_sizes.items()
        ]
        return np.concatenate([_pooled_numbers(sequences, number_fields), *bags], axis=1).astype(np.float32)

    # Every iteration grows one tree per class: the number of trees, and with it the time, stays bounded.
    iterations = min(100, max(30, 600 // len(np.unique(train.labels))))
    model = HistGradientBoostingClassifier(
        max_iter=iterations, learning_rate=0.1, max_leaf_nodes=15, early_stopping=False, random_state=seed
    )
    model.fit(features(train.sequences), train.labels)
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _pooled_numbers(sequences: Ragged, number_fields: Sequence[str]) -> np.ndarray:
    """Return (N, F) features: log length, then mean, standard deviation, minimum and maximum of each channel."""
    lengths = sequences.lengths
    columns = [np.log(lengths)[:, None]]
    starts = sequences.offsets[:-1]
    for name in number_fields:
        values = np.asarray(sequences.fields[name], np.float64)
        mean = np.add.reduceat(values, starts) / lengths[:, None]
        mean_of_squares = np.add.reduceat(values**2, starts) / lengths[:, None]
        columns += [mean, np.sqrt(np.maximum(0, mean_of_squares - mean**2))]
        columns += [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)]
    return np.concatenate(columns, axis=1)


def _category_counts(sequences: Ragged, name: str, size: int) -> Any:
    """Return the (N, size) sparse counts of each id."""
    from scipy import sparse

    ids, offsets = sequences.fields[name], np.array(sequences.offsets)
    if ids.ndim == 2:  # several ids per token, and 0 for no value
        has_value = ids > 0
        offsets = np.append(0, np.cumsum(has_value.sum(axis=1)))[offsets]
        ids = ids[has_value]
    else:
        ids = np.array(ids)  # a copy, as SciPy sorts the indices in place
    counts = sparse.csr_matrix((np.ones(len(ids), np.float32), ids, offsets), (len(sequences), size))
    counts.sum_duplicates()
    return counts


def _spread_over_classes(probabilities: np.ndarray, class_codes: np.ndarray, num_classes: int) -> np.ndarray:
    """Return (N, num_classes) probabilities, 0 for the classes that train lacks."""
    spread = np.zeros((len(probabilities), num_classes))
    spread[:, class_codes] = probabilities
    return spread
