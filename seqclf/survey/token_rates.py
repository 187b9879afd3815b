"""Token rates: how often each class uses the most frequent values of a field, and those that are typical of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.field_spec import UNKNOWN_IDS
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import sample_split
from seqclf.survey.baseline import MAX_FITTED_TOKENS
from seqclf.survey.largest_classes import largest_classes
from seqclf.system.json_result import JsonResult

MOST_CLASSES = 10
FREQUENT = 20  # values
TYPICAL = 10  # values of each class
MIN_Z = 3.0  # standard errors by which the log odds of a typical value differ from those of the other classes
PRIOR_TOKENS = 500.0  # weight of the rates over all classes


@dataclass(frozen=True)
class TokenRate(JsonResult):
    """A value of a field. `rates`: its share of the tokens of each class, by label."""

    value: str
    share: float
    rates: dict[str, float]


@dataclass(frozen=True)
class TokenRates(JsonResult):
    """Rates in a sample of the training rows.

    `frequent`: the most frequent values. `typical`: by label, values that the class uses more often than the others.
    """

    frequent: list[TokenRate]
    typical: dict[str, list[TokenRate]]


def measure_token_rates(dataset: Dataset, name: str, encoder: Encoder) -> TokenRates | None:
    """Count the values of a field by class. None for a field of numbers.

    Large splits are sampled by whole rows. Of many classes, the largest are counted one by one and the others together.
    """
    spec: Any = encoder.spec()
    if spec["kind"] == "number":
        return None
    # A bag has room for its largest set in every token.
    width = 1 if spec["kind"] == "category" else dataset.splits["train"].sequences.fields[name].shape[1]
    sample = sample_split(dataset.splits["train"], MAX_FITTED_TOKENS // width, 0)
    codes = largest_classes(dataset, MOST_CLASSES)
    group_of_class = np.full(len(dataset.classes), len(codes))
    group_of_class[codes] = np.arange(len(codes))
    groups = np.repeat(group_of_class[sample.labels], sample.sequences.lengths)
    ids = np.asarray(sample.sequences.fields[name])
    counts = count_ids(ids, groups, len(codes) + 1, spec["size"])
    counts[:, : UNKNOWN_IDS[spec["kind"]] + 1] = 0  # unknown values, and the lack of one, say nothing
    labels = [dataset.classes[code] for code in codes]
    return _rates(counts, labels, lambda chosen: _texts(encoder, name, ids.ndim, chosen))


def count_ids(ids: np.ndarray, groups: np.ndarray, num_groups: int, size: int) -> np.ndarray:
    """Return the (G, V) counts of ids (S,) or (S, K) by the group (S,) of their token.

    >>> count_ids(np.array([1, 2, 2]), np.array([0, 0, 1]), num_groups=2, size=3).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    if ids.ndim == 2:
        groups, ids = np.repeat(groups, ids.shape[1]), ids.reshape(-1)
    return np.bincount(groups * size + ids, minlength=num_groups * size).reshape(num_groups, size)


def typical_scores(counts: np.ndarray) -> np.ndarray:
    """Return the (G, V) z-scores of the log odds of each value in a group against all other groups.

    With a Dirichlet prior from the rates over all groups, so that rare values need evidence (Monroe, Colaresi and
    Quinn 2008, https://doi.org/10.1093/pan/mpn018, equations 16 and 22).
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
        with np.errstate(divide="ignore", invalid="ignore"):  # a field of one value has no odds
            scores = np.nan_to_num(typical_scores(counts))
        for group, label in enumerate(labels):
            best = np.argsort(-scores[group], kind="stable")[:TYPICAL]
            typical[label] = entries(best[scores[group, best] >= MIN_Z])
    return TokenRates(entries(frequent[total[frequent] > 0]), typical)


def _texts(encoder: Encoder, name: str, dimensions: int, ids: np.ndarray) -> list[str]:
    """Return the texts of single ids."""
    tokens = encoder.decode({name: ids[:, None] if dimensions == 2 else ids})
    return [token[1:-1] for token in tokens] if dimensions == 2 else tokens  # a set is written in braces
