"""The order-blind baseline: scikit-learn models that get the tokens of a sequence without their order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from seqclf.data.field_spec import TokenSpec, id_specs, kind_of, number_specs
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split, sample_split
from seqclf.evaluation.design_effect import or_ones
from seqclf.system import progress

# Maximum number of tokens to train on; a larger split is replaced by a sample of its rows.
MAX_FITTED_TOKENS = 8_000_000
# With fewer rows than this, several threads are slower than one thread, most of all on busy cores.
SINGLE_THREAD_ROWS = 5_000
# Gradient boosting gets the counts of at most this many values of a categorical field, the most frequent values.
MAX_BOOSTED_CATEGORIES = 200
# Gradient boosting grows a tree for each class in each iteration. With more classes it would take many minutes.
MAX_BOOSTED_CLASSES = 200
COSTS = (0.003, 0.03, 0.3, 3.0, 30.0)  # C of logistic regression, chosen by folds of the training rows
DEFAULT_COST = 3.0  # C if no rows can be left out
FOLDS = 3
MAX_CHOICE_ROWS = 4_000  # rows that choose C; a larger split is replaced by a sample of its rows
MIN_PROBABILITY = 1e-6  # probability of a class that the training rows of a fold lack
NUMBER_CLIP = 10.0  # number of standard deviations at which pooled numbers are clipped
# Norm of the counts of a sequence, about the norm of its pooled numbers, so that one C suits both.
BAG_NORM = np.sqrt(10)

MODELS = LOGISTIC, BOOSTING = "logistic regression", "gradient boosting"

# Function from sequences to (probabilities (N, K), class codes (K,)).
Predictor = Callable[[Ragged], tuple[np.ndarray, np.ndarray]]


def fit_baseline(
    splits: Mapping[str, Split],
    fields: Sequence[TokenSpec],
    num_classes: int,
    seed: int = 0,
    *,
    shared_scales: Mapping[str, str] | None = None,
    quick: bool = False,
) -> dict[str, dict[str, np.ndarray]]:
    """Fit logistic regression and gradient boosting on features that ignore the order of the tokens.

    Features are counts of categorical values, statistics of numbers such as the mean, and static fields. Returns dict
    model → split → probabilities (N, C), for every split except train. `splits`: train and at least one other.
    `fields`: specs of the encoded fields. `shared_scales`: dict number field that scales every sequence by itself →
    array with its channels on one scale. Logistic regression gets these in place of the encoded fields, gradient
    boosting both, because more features cost it little. Beyond `MAX_BOOSTED_CLASSES` classes it is left out. `quick`:
    logistic regression alone, with `DEFAULT_COST`.

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

    # A bag field holds several ids per token, and each token is padded to the number of ids in the largest bag.
    bags = [field["name"] for field in fields if kind_of(field).has_several]
    widest = max([1, *(splits["train"].sequences.fields[name].shape[1] for name in bags)])
    train = sample_split(splits["train"], MAX_FITTED_TOKENS // widest, seed)
    other_splits = {name: split for name, split in splits.items() if name != "train"}
    category_sizes = {field["name"]: field["size"] for field in id_specs(fields)}
    encoded = [field["name"] for field in number_specs(fields)]
    shared_scales = shared_scales or {}
    shared = [shared_scales.get(name, name) for name in encoded]
    both = list(dict.fromkeys([*shared, *encoded]))
    probabilities: dict[str, dict[str, np.ndarray]] = {}
    threads = 1 if len(train.labels) < SINGLE_THREAD_ROWS else None
    models: list[tuple[str, Callable[..., Predictor], list[str]]]
    models = [(LOGISTIC, partial(_fit_logistic, quick=quick), shared), (BOOSTING, _fit_boosting, both)]
    if quick or num_classes > MAX_BOOSTED_CLASSES:
        models.pop()
    with warnings.catch_warnings(), threadpool_limits(threads):
        warnings.simplefilter("ignore")  # a model that has not converged is still a valid baseline
        for name, fit, number_fields in models:
            with progress.stage(f"order-blind baseline: {name}"):
                predict = fit(train, category_sizes, number_fields, seed)
                probabilities[name] = {
                    split_name: _spread_over_classes(*predict(split.sequences), num_classes)
                    for split_name, split in other_splits.items()
                }
    return probabilities


def _fit_logistic(
    train: Split, category_sizes: Mapping[str, int], number_fields: Sequence[str], seed: int, *, quick: bool
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

    found, labels = features(train.sequences), np.asarray(train.labels)
    weights = train.mean_weights
    cost = DEFAULT_COST if quick else _choose_cost(found, labels, train.groups, seed, weights)
    model = LogisticRegression(C=cost, max_iter=300, random_state=seed).fit(found, labels, weights)
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _choose_cost(features: Any, labels: np.ndarray, groups: Any, seed: int, weights: np.ndarray | None = None) -> float:
    """Return the C of the lowest log loss on left-out training rows. Rows of one group are left out together.

    The best C differs widely: 0.003 for hospital observations of 123 channels, 30 for counts of log messages.
    """
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(seed)
    rows = np.sort(generator.permutation(len(labels))[:MAX_CHOICE_ROWS])
    features, labels = features[rows], labels[rows]
    weights = None if weights is None else weights[rows]
    unit = np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    fold = generator.permutation(unit.max() + 1)[unit] % FOLDS
    parts = [fold == number for number in range(FOLDS)]
    parts = [out for out in parts if out.any() and len(np.unique(labels[~out])) > 1]
    losses = []
    for cost in COSTS:
        loss = 0.0
        for out in parts:
            model = LogisticRegression(C=cost, max_iter=300, random_state=seed)
            model.fit(features[~out], labels[~out], None if weights is None else weights[~out])
            known = _spread_over_classes(model.predict_proba(features[out]), model.classes_, labels.max() + 1)
            loss -= (
                np.log(np.maximum(known[np.arange(out.sum()), labels[out]], MIN_PROBABILITY))
                @ or_ones(weights, len(rows))[out]
            )
        losses.append(loss)
    return COSTS[int(np.argmin(losses))] if parts else DEFAULT_COST


def _fit_boosting(
    train: Split, category_sizes: Mapping[str, int], number_fields: Sequence[str], seed: int
) -> Predictor:
    from sklearn.ensemble import HistGradientBoostingClassifier

    def features(sequences: Ragged) -> np.ndarray:
        # Vocabularies sort values by descending frequency, so the first columns count the most frequent values.
        bags = [
            _category_counts(sequences, name, size)[:, :MAX_BOOSTED_CATEGORIES].toarray()
            for name, size in category_sizes.items()
        ]
        return np.concatenate([_pooled_numbers(sequences, number_fields), *bags], axis=1).astype(np.float32)

    # Each iteration grows one tree per class. With many classes, fewer iterations limit the number of trees and the
    # training time.
    iterations = min(100, max(30, 600 // len(np.unique(train.labels))))
    # Small trees of some of the features each: with 15 leaves and all features, log loss is higher on most data.
    model = HistGradientBoostingClassifier(
        max_iter=iterations,
        learning_rate=0.1,
        max_leaf_nodes=8,
        max_features=0.3,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    model.fit(features(train.sequences), train.labels, train.mean_weights)
    return lambda sequences: (model.predict_proba(features(sequences)), model.classes_)


def _pooled_numbers(sequences: Ragged, number_fields: Sequence[str]) -> np.ndarray:
    """Return (N, F): log length, and mean, standard deviation, minimum and maximum of each number channel."""
    lengths = sequences.lengths
    columns = [np.log(lengths)[:, None]]
    starts = sequences.offsets[:-1]
    for name in number_fields:
        if name in sequences.static:
            columns.append(np.asarray(sequences.static[name], np.float64))
            continue
        values = np.asarray(sequences.fields[name], np.float64)
        mean = np.add.reduceat(values, starts) / lengths[:, None]
        mean_of_squares = np.add.reduceat(values**2, starts) / lengths[:, None]
        columns += [mean, np.sqrt(np.maximum(0, mean_of_squares - mean**2))]
        columns += [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)]
    return np.concatenate(columns, axis=1)


def _category_counts(sequences: Ragged, name: str, size: int) -> Any:
    """Return a sparse (N, size) matrix that counts each id in each sequence."""
    from scipy import sparse

    if name in sequences.static:
        ids, offsets = sequences.static[name], np.arange(len(sequences) + 1)
    else:
        ids, offsets = sequences.fields[name], np.array(sequences.offsets)
    if ids.ndim == 2:  # a bag field has several ids per token, padded with the id 0
        has_value = ids > 0
        offsets = np.append(0, np.cumsum(has_value.sum(axis=1)))[offsets]
        ids = ids[has_value]
    else:
        ids = np.array(ids)  # copy the ids, because SciPy sorts them in place
    counts = sparse.csr_matrix((np.ones(len(ids), np.float32), ids, offsets), (len(sequences), size))
    counts.sum_duplicates()
    return counts


def _spread_over_classes(probabilities: np.ndarray, class_codes: np.ndarray, num_classes: int) -> np.ndarray:
    """A class without training rows has the probability 0."""
    spread = np.zeros((len(probabilities), num_classes))
    spread[:, class_codes] = probabilities
    return spread
