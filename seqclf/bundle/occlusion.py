"""Occlusion: the contribution of a token is the change of the prediction if the token holds no information.

A neutral value (see `FieldEncoder.neutral`), such as the unknown value of a vocabulary, replaces that of the token. The
change is in log-odds of the predicted class, log(p / (1 - p)), because a probability near 1 hardly changes by one
token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoders import tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.ragged import Ragged, take

MAX_OCCLUDED_TOKENS = 500_000  # maximum total number of tokens in the copies that are scored at a time

# A score is a function with two arguments: M copies, and the row index of each copy. It returns the (M,) log-odds of
# the class that was predicted for the row.
Score = Callable[[Ragged, np.ndarray], np.ndarray]


class Contributions(NamedTuple):
    """Contributions of S tokens to the predicted class, in log-odds. A positive contribution supports the prediction.

    The tokens of consecutive rows are concatenated. `tokens`: (S,) contribution of each token with all of its fields, 0
    if the model stopped before it. `by_field`: dict field name → (S,) contribution of the field; they need not add up
    to that of the token. `static`: dict static field → (N,) its contribution to the prediction of each row.
    """

    tokens: np.ndarray
    by_field: dict[str, np.ndarray]
    static: dict[str, np.ndarray]


def log_odds(scaled: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the log-odds (N,) of one class per row. `scaled`: (N, C) logits divided by the temperature.

    >>> log_odds(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([1, 0])).tolist()
    [2.0, 0.0]
    """
    rows = np.arange(len(scaled))
    others = scaled.astype(np.float64)
    chosen = others[rows, classes].copy()
    others[rows, classes] = -np.inf
    highest = others.max(axis=1)
    return chosen - highest - np.log(np.exp(others - highest[:, None]).sum(axis=1))


def apart_fields(encoders: Mapping[str, FieldEncoder]) -> list[str]:
    """Return the names of the token fields that are explained apart: all fields, or none if there is a single field."""
    names = list(tokens_of(encoders))
    return names if len(names) > 1 else []


def occlude(
    encoders: Mapping[str, FieldEncoder],
    sequences: Ragged,
    score: Score,
    *,
    by_field: bool,
    tokens: np.ndarray | None = None,
) -> Contributions:
    """Return the contributions of the tokens of N encoded sequences.

    Each token is occluded in a copy of its sequence. With `by_field`, each field of a token is also occluded alone.
    Each static field is occluded alone. `score`: see `Score`. `tokens`: (M,) ascending indices of the tokens to
    occlude, None for all.
    """
    lengths, starts = sequences.lengths, sequences.offsets[:-1]
    chosen = np.arange(int(lengths.sum())) if tokens is None else tokens
    rows = np.searchsorted(sequences.offsets, chosen, side="right") - 1
    part = np.cumsum(lengths[rows], dtype=np.int64) // MAX_OCCLUDED_TOKENS
    parts = np.split(np.arange(len(chosen)), np.flatnonzero(np.diff(part)) + 1) if len(chosen) else []
    complete = score(sequences, np.arange(len(lengths)))

    def contributions(names: Iterable[str]) -> np.ndarray:
        changes = np.zeros(len(chosen))
        for some in parts:
            copies = take(sequences, rows[some])
            occluded = dict(copies.fields)
            places = copies.offsets[:-1] + chosen[some] - starts[rows[some]]
            for name in names:
                occluded[name] = occluded[name].copy()  # `take` returns the array itself if every row is taken once
                occluded[name][places] = encoders[name].neutral(occluded[name][places])
            changes[some] = complete[rows[some]] - score(Ragged(copies.offsets, occluded, copies.static), rows[some])
        return changes

    def of_static(name: str) -> np.ndarray:
        values = sequences.static[name]
        static = {**sequences.static, name: encoders[name].neutral(values)}
        occluded = Ragged(sequences.offsets, sequences.fields, static)
        return complete - score(occluded, np.arange(len(lengths)))

    fields = apart_fields(encoders) if by_field else []
    return Contributions(
        contributions(list(tokens_of(encoders))),
        {name: contributions([name]) for name in fields},
        {name: of_static(name) for name in sequences.static},
    )
