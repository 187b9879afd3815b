"""Lengths of the training sequences, and how strongly their numbers depend on the order of the tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from seqclf.data.field_spec import FieldSpec, number_specs, token_specs
from seqclf.data.ragged import Ragged, take

LAGS = (1, 2, 4, 8)  # distances of tokens whose values are compared
MAX_ROWS, MAX_TOKENS = 500, 200_000  # sample of the training rows
STANDARD_ERRORS = 3  # standard errors of chance that are subtracted from an autocorrelation
MIN_DEVIATION = 1e-6  # below it, a channel of a sequence is constant
MAX_VALUE = 1e15  # larger values are clipped, so that no square overflows


class SequenceSummary(TypedDict):
    """Summary of the training sequences. `order`: see `order_strength`; None without number fields.

    `median`, `longest`: lengths in tokens.
    """

    order: float | None
    median: int
    longest: int


def summarize_sequences(sequences: Ragged, fields: Iterable[FieldSpec]) -> SequenceSummary:
    """Return the summary of the training sequences. `fields`: specs of the encoded fields."""
    numbers = [spec["name"] for spec in number_specs(token_specs(fields))]
    lengths = sequences.lengths
    if not len(lengths):
        return {"order": None, "median": 1, "longest": 1}
    order = order_strength(sequences, numbers) if numbers else None
    return {
        "order": None if order is None else round(order, 4),
        "median": int(np.median(lengths)),
        "longest": int(lengths.max()),
    }


def order_strength(sequences: Ragged, names: Iterable[str]) -> float:
    """Return the largest autocorrelation within sequences of any channel, at a distance of 1, 2, 4 or 8 tokens.

    Three standard errors are subtracted, so that tokens in random order give about 0, however few. At most 500 random
    sequences are read.

    >>> tokens = np.sin(np.arange(1000) / 5)[:, None]
    >>> waves = Ragged(np.arange(0, 1001, 100), {"x": tokens})
    >>> mixed = Ragged(waves.offsets, {"x": np.random.default_rng(0).permutation(tokens)})
    >>> round(order_strength(waves, ["x"]), 1), order_strength(mixed, ["x"]) < 0.1
    (0.9, True)
    """
    chosen = np.random.default_rng(0).permutation(len(sequences))[:MAX_ROWS]
    total = np.cumsum(sequences.lengths[chosen])
    chosen = np.sort(chosen[: max(1, int(np.searchsorted(total, MAX_TOKENS)))])
    sampled = take(sequences, chosen)
    values = np.concatenate([np.asarray(sampled.fields[name], np.float64) for name in names], axis=1)
    values = np.clip(values, -MAX_VALUE, MAX_VALUE)
    starts, lengths = sampled.offsets[:-1], sampled.lengths
    row = np.repeat(np.arange(len(lengths)), lengths)
    scored = values - (np.add.reduceat(values, starts) / lengths[:, None])[row]
    deviation = np.sqrt(np.add.reduceat(scored**2, starts) / lengths[:, None])
    scored /= np.maximum(deviation, MIN_DEVIATION * (1 + np.abs(values).max(axis=0)))[row]
    power = np.maximum((scored**2).mean(axis=0), MIN_DEVIATION)
    position = np.arange(len(row)) - starts[row]
    best = 0.0
    for lag in LAGS:
        later = np.flatnonzero(position >= lag)
        if not len(later):
            break
        # A sequence of n tokens in random order has an autocorrelation of -1 / n, because its mean was subtracted.
        chance = (1 / lengths[row[later]]).mean()
        products = (scored[later] * scored[later - lag]).mean(axis=0)
        best = max(best, float(np.abs(products / power + chance).max()) - STANDARD_ERRORS / len(later) ** 0.5)
    return best
