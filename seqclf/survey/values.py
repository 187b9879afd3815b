"""Values of each field by class: distributions of numbers, frequencies of tokens, and example rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.encoders import decode
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.field_spec import UNKNOWN_IDS
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import sample_split
from seqclf.evaluation.baseline import MAX_FITTED_TOKENS
from seqclf.survey.fields import MAX_SPREAD_VALUES
from seqclf.system.json_result import JsonResult

# The largest classes, which get their own statistics in a survey.


def largest_classes(dataset: Dataset, most: int) -> list[int]:
    """Return the codes of at most `most` classes. The class with the most training rows comes first.

    The positive class is always included if it has a training row.
    """
    counts = np.bincount(dataset.splits["train"].labels, minlength=len(dataset.classes))
    order = [int(code) for code in np.argsort(-counts, kind="stable") if counts[code]]
    positive = None if dataset.positive is None else dataset.classes.index(dataset.positive)
    if positive is not None and positive in order[most:]:
        return [*order[: most - 1], positive]
    return order[:most]


MAX_CLASSES = 10
BINS = 24
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
TAILS = (0.005, 0.995)  # the histogram ends at these quantiles, so that outliers do not widen it


@dataclass(frozen=True)
class ValueQuantiles(JsonResult):
    """Quantiles of numbers in units of the data.

    `values`: number of values. If there are no values, all quantiles are `None`.
    """

    values: int
    p5: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class ValueDistribution(JsonResult):
    """Distribution of one channel in a sample of the training rows.

    `unit`: "s" for the time gaps of a time field, else "". `all_rows`: quantiles over all sampled rows. `by_class`:
    dict label → quantiles, for the largest classes. `edges`: the B + 1 edges of the B bins of a histogram. `counts`:
    number of values in each bin. The two outer bins also count the values beyond the outer edges. `edges` and `counts`
    are empty if all values are equal.
    """

    unit: str
    all_rows: ValueQuantiles
    by_class: dict[str, ValueQuantiles]
    edges: list[float]
    counts: list[int]


def measure_values(dataset: Dataset, name: str, encoder: FieldEncoder) -> dict[str, ValueDistribution] | None:
    """Return dict channel → distribution of the channel's training values.

    Return `None` for a field without numbers. Only a sample of the rows of a large training split is measured.
    """
    if not isinstance(encoder, NumberEncoder):
        return None
    channels = encoder.channel_names()
    sample = sample_split(dataset.splits["train"], MAX_SPREAD_VALUES // max(1, len(channels)), 0)
    values = encoder.original_values(sample.sequences.fields)
    codes = largest_classes(dataset, MAX_CLASSES)
    labels = np.repeat(sample.labels, sample.sequences.lengths)
    masks = {dataset.classes[code]: labels == code for code in codes}
    return {
        channel: measure_channel(values[:, position], masks)
        for position, channel in enumerate(channels[: values.shape[1]])
    }


def measure_channel(values: np.ndarray, masks: dict[str, np.ndarray], unit: str = "") -> ValueDistribution:
    """Measure the distribution of one channel.

    `values`: (S,) values of all tokens. Missing values are NaN. `masks`: dict label → (S,) bool, True for the tokens of
    rows with this label.

    >>> both = {"a": np.array([True, True, False]), "b": np.array([False, False, True])}
    >>> distribution = measure_channel(np.array([1.0, 3.0, np.nan]), both)
    >>> distribution.all_rows.p50, distribution.by_class["a"].values, distribution.by_class["b"].values
    (2.0, 2, 0)
    """
    present = np.isfinite(values)
    edges, counts = _histogram(values[present])
    return ValueDistribution(
        unit=unit,
        all_rows=_quantiles(values[present]),
        by_class={label: _quantiles(values[present & mask]) for label, mask in masks.items()},
        edges=edges,
        counts=counts,
    )


def _quantiles(values: np.ndarray) -> ValueQuantiles:
    if not len(values):
        return ValueQuantiles(0)
    return ValueQuantiles(len(values), *np.quantile(values, LEVELS).tolist())


def _histogram(values: np.ndarray) -> tuple[list[float], list[int]]:
    """Return the edges and counts of a histogram.

    If the values are integers in a small range, each integer has a bin. All other values are counted in bins of
    equal width between the quantiles `TAILS`.
    """
    if not len(values):
        return [], []
    low, high = np.quantile(values, TAILS).tolist()
    if low == high:
        low, high = float(values.min()), float(values.max())
    if low == high:
        return [], []
    if high - low < BINS and (values == np.round(values)).all():
        edges = np.arange(low, high + 2) - 0.5
    else:
        edges = np.linspace(low, high, BINS + 1)
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return edges.tolist(), counts.tolist()


# Example rows: a few training rows of each class as readable text.

ROWS_PER_CLASS = 3
USUAL_ROWS, MAX_ROWS = 9, 20  # maximum number of example rows of all classes; with many classes, one row for each class
MAX_TOKENS = 60  # shown tokens of an example row: the first and the last tokens


@dataclass(frozen=True)
class ExampleRow(JsonResult):
    """An example row of the training split.

    `length`: number of tokens before truncation. `text`: first and last tokens of the row.
    """

    label: str
    id: str
    length: int
    text: str


def example_rows(dataset: Dataset) -> list[ExampleRow]:
    """Draw random training rows of the largest classes and of the positive class. The random seed is fixed.

    The function reads only the rows that it draws.
    """
    split = dataset.splits["train"]
    codes = largest_classes(dataset, MAX_ROWS)
    per_class = max(1, min(ROWS_PER_CLASS, USUAL_ROWS // max(1, len(codes))))
    generator = np.random.default_rng(0)
    lengths = split.lengths_before_truncation
    examples = []
    for code in codes:
        rows = np.flatnonzero(split.labels == code)
        for row in np.sort(generator.choice(rows, min(per_class, len(rows)), replace=False)).tolist():
            start, stop = split.sequences.offsets[row], split.sequences.offsets[row + 1]
            tokens = {name: values[start:stop] for name, values in split.sequences.fields.items()}
            text = readable(decode(dataset.encoders, tokens, MAX_TOKENS))
            examples.append(ExampleRow(dataset.classes[code], str(split.ids[row]), int(lengths[row]), text))
    return examples


def readable(text: str) -> str:
    """Remove the spaces that tokenization put around punctuation.

    >>> readable("it ' s a good film ( really ) , i think .")
    "it's a good film (really), i think."
    """
    text = re.sub(r" ([,.;:!?)\]])", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    return re.sub(r"(\w) ' (s|t|d|m|re|ve|ll)\b", r"\1'\2", text)


# Token rates: the fraction of the tokens of a class that have a given value. Rates are measured for frequent values and
# for typical values. A value is typical of a class if it is clearly more frequent in the class than in other classes.

FREQUENT = 20  # shown frequent values of a field
TYPICAL = 10  # shown typical values of each class
MIN_Z = 3.0  # minimum z-score of a typical value, from its log odds in the class and in the other classes
PRIOR_TOKENS = 500.0  # weight of the Dirichlet prior, in tokens


@dataclass(frozen=True)
class TokenRate(JsonResult):
    """Frequency of one value of a field.

    `share`: fraction of all tokens that have the value. `rates`: dict label → fraction of the label's tokens that have
    the value.
    """

    value: str
    share: float
    rates: dict[str, float]


@dataclass(frozen=True)
class TokenRates(JsonResult):
    """Frequencies of the values of one field in a sample of the training rows.

    `frequent`: the most frequent values of the field. `typical`: dict label → values that are more frequent in rows of
    the label than in other rows.
    """

    frequent: list[TokenRate]
    typical: dict[str, list[TokenRate]]


def measure_token_rates(dataset: Dataset, name: str, encoder: FieldEncoder) -> TokenRates | None:
    """Measure how frequent the values of a field are in each class. Return `None` for a field of numbers.

    Only a sample of the rows of a large training split is measured. If there are many classes, each of the largest
    classes is counted separately. All other classes are counted together as one group.
    """
    spec: Any = encoder.spec()
    if spec["kind"] == "number":
        return None
    # In a bag field, every token is padded to the largest set of values.
    width = 1 if spec["kind"] == "category" else dataset.splits["train"].sequences.fields[name].shape[1]
    sample = sample_split(dataset.splits["train"], MAX_FITTED_TOKENS // width, 0)
    codes = largest_classes(dataset, MAX_CLASSES)
    group_of_class = np.full(len(dataset.classes), len(codes))
    group_of_class[codes] = np.arange(len(codes))
    groups = np.repeat(group_of_class[sample.labels], sample.sequences.lengths)
    ids = np.asarray(sample.sequences.fields[name])
    counts = count_ids(ids, groups, len(codes) + 1, spec["size"])
    counts[:, : UNKNOWN_IDS[spec["kind"]] + 1] = 0  # leave out unknown and missing values
    labels = [dataset.classes[code] for code in codes]
    return _rates(counts, labels, lambda chosen: _id_texts(encoder, name, ids.ndim, chosen))


def count_ids(ids: np.ndarray, groups: np.ndarray, num_groups: int, size: int) -> np.ndarray:
    """Return (G, V) counts: the number of occurrences of each id in each group.

    `ids`: (S,) ids, or (S, K) with K ids for each token. `groups`: (S,) group of each token.

    >>> count_ids(np.array([1, 2, 2]), np.array([0, 0, 1]), num_groups=2, size=3).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    if ids.ndim == 2:
        groups, ids = np.repeat(groups, ids.shape[1]), ids.reshape(-1)
    return np.bincount(groups * size + ids, minlength=num_groups * size).reshape(num_groups, size)


def typical_scores(counts: np.ndarray) -> np.ndarray:
    """Return (G, V) z-scores that show how typical each value is of each group.

    A score is the difference between the log odds of the value inside and outside the group, divided by the standard
    error of this difference. `counts`: (G, V) number of occurrences of each value in each group. A Dirichlet prior,
    proportional to the frequencies over all groups, shrinks the scores of rare values (Monroe, Colaresi and Quinn 2008,
    https://doi.org/10.1093/pan/mpn018, equations 16 and 22).
    """
    total = counts.sum(axis=0)
    prior = PRIOR_TOKENS * total / max(1, total.sum()) + 1e-9
    inside, outside = counts + prior, total - counts + prior
    odds_inside = np.log(inside) - np.log(inside.sum(axis=1, keepdims=True) - inside)
    odds_outside = np.log(outside) - np.log(outside.sum(axis=1, keepdims=True) - outside)
    return (odds_inside - odds_outside) / np.sqrt(1 / inside + 1 / outside)


def _rates(counts: np.ndarray, labels: list[str], texts: Any) -> TokenRates:
    total = counts.sum(axis=0)
    shares = total / max(1, total.sum())
    by_group = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))

    def entries(chosen: np.ndarray) -> list[TokenRate]:
        return [
            TokenRate(
                text, float(shares[id]), {label: float(by_group[group, id]) for group, label in enumerate(labels)}
            )
            for id, text in zip(chosen.tolist(), texts(chosen), strict=True)
        ]

    frequent = np.argsort(-total, kind="stable")[:FREQUENT]
    typical = {}
    if len(labels) > 1 and total.any():
        with np.errstate(divide="ignore", invalid="ignore"):  # the odds of a field with a single value are undefined
            scores = np.nan_to_num(typical_scores(counts))
        for group, label in enumerate(labels):
            best = np.argsort(-scores[group], kind="stable")[:TYPICAL]
            typical[label] = entries(best[scores[group, best] >= MIN_Z])
    return TokenRates(entries(frequent[total[frequent] > 0]), typical)


def _id_texts(encoder: FieldEncoder, name: str, dimensions: int, ids: np.ndarray) -> list[str]:
    """Return the text of each id of a field, whose array has 1 dimension, or 2 for a set of values per token."""
    tokens = encoder.decode({name: ids[:, None] if dimensions == 2 else ids})
    return [token[1:-1] for token in tokens] if dimensions == 2 else tokens  # strip the braces around a set
