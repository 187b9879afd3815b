"""Reference data: shares of values, lengths and probabilities in the data of a bundle, for comparison with new rows.

They are those of rows that the model did not train on: training rows have no unknown value, because they made the
vocabulary, and the model is too sure of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import kind_of
from seqclf.data.ragged import Ragged
from seqclf.documents.formatting import plain_number, shortened
from seqclf.errors import InputError
from seqclf.evaluation.design_effect import effective_groups, group_codes
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import POSITIVE, SHARE, SIZE, Each, require

MAX_VALUES = 19  # bins of a field, without those of other and of unknown values; odd, so that one is at the median
MAX_CHANNELS = 4  # first channels of a vector
LENGTH = "sequence length"  # name of the lengths before truncation
SHAPE = {"values": [float], "texts": [str], "mean": [SHARE], "variance": [SHARE], "rows": SIZE, "groups": POSITIVE}


class BinShares(NamedTuple):
    """Shares of B bins in a sample, and their variance: (B,). `groups`: effective number of groups, None if unknown."""

    mean: np.ndarray
    variance: np.ndarray
    rows: int
    groups: float | None


def bin_shares(proportions: np.ndarray, groups: np.ndarray | None) -> BinShares:
    """Return the shares of bins in at least two rows.

    `proportions`: (N, B) of each row's tokens in each bin. `groups`: (N,) keys of groups, None if unknown.

    >>> bin_shares(np.array([[1.0, 0.0], [0.5, 0.5]]), None).mean.tolist()
    [0.75, 0.25]
    """
    rows, mean, codes = len(proportions), proportions.mean(axis=0, dtype=np.float64), group_codes(groups)
    sums, count = proportions - mean, float(rows)
    if codes is not None:
        order = np.argsort(codes, kind="stable")
        sums = np.add.reduceat(sums[order], np.flatnonzero(np.diff(codes[order], prepend=-1)))
        count = effective_groups(codes)
    variance = (sums**2).sum(axis=0) / rows**2 * count / max(count - 1, 0.5)
    return BinShares(mean, variance, rows, None if groups is None else count)


class Bins(NamedTuple):
    """Bins of a field: one for each of `values` (K,), ascending, one for others, one for unknown or missing ones.

    A bin of a float64 number has the numbers nearest to it, a bin of an integer has one id. `texts`: text of each bin.
    """

    values: np.ndarray
    texts: list[str]

    @classmethod
    def fit(cls, values: np.ndarray, encoder: FieldEncoder | None) -> Bins:
        """Return bins at the quantiles of numbers `values` (S,), or of the most frequent ids of the encoder's field."""
        if encoder is None or values.dtype.kind == "f":
            found = np.unique(values[~np.isnan(values)])
            if len(found) > MAX_VALUES:
                shares = (np.arange(MAX_VALUES) + 0.5) / MAX_VALUES
                found = np.unique(np.nanquantile(values, shares, method="nearest"))
            return cls(found, [*(f"around {plain_number(value)}" for value in found), "others", "missing values"])
        counts = np.bincount(values[values != encoder.unknown_id])
        ids = np.sort(np.argsort(-counts, kind="stable")[: min(MAX_VALUES, np.count_nonzero(counts))])
        return cls(ids, [*id_texts(ids, encoder), "other values", "unknown values"])

    def proportions(self, values: np.ndarray, counts: np.ndarray, unknown_id: int | None) -> np.ndarray:
        """Return the (N, K + 2) float32 proportion of each row's values in each bin, of numbers the sums up to a bin.

        A shift is small in each bin, and large in the sums. `values`: (S,) of all rows, end to end. `counts`: (N,)
        number of values of each row.
        """
        last = len(self.values) + 1
        if self.is_number:
            bins = np.searchsorted(self.values[:-1] / 2 + self.values[1:] / 2, values)
            bins[np.isnan(values)] = last
        else:
            bins = np.searchsorted(self.values[:-1], values)
            bins[self.values[bins] != values] = last - 1
            bins[values == unknown_id] = last
        bins += np.repeat(np.arange(len(counts)) * (last + 1), counts)
        sums = np.bincount(bins, minlength=len(counts) * (last + 1)).reshape(len(counts), last + 1)
        sums = sums.cumsum(axis=1) if self.is_number else sums
        return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)

    @property
    def is_number(self) -> bool:
        return self.values.dtype.kind == "f"


def id_texts(ids: np.ndarray, encoder: FieldEncoder) -> list[str]:
    tokens = ids[:, None] if kind_of(encoder.spec()).has_several else ids
    return [shortened(text, 30) for text in encoder.decode({encoder.field.name: tokens})]


class ReferenceData:
    """Shares of the bins of each field, of the lengths and of the probabilities.

    `fields`: dict name → bins and their shares, empty for a bundle without reference data.
    """

    def __init__(self, encoders: Mapping[str, FieldEncoder], classes: Sequence[str], positive: str | None):
        self.encoders = encoders
        self.positive = None if positive is None else classes.index(positive)
        self.unknown_ids = {name: encoder.unknown_id for name, encoder in encoders.items()}
        self.fields: dict[str, tuple[Bins, BinShares]] = {}

    def fit(self, rows: PredictedRows, training: Ragged) -> None:
        """Remember the shares of at least two rows.

        `training`: training rows, whose most frequent ids have bins. Those of `rows` are more frequent there by chance.
        """
        groups = np.arange(len(rows.lengths)) if rows.groups is None else rows.groups
        known = {name: values for name, values, _ in self._values_of_fields(training)}
        for name, values, counts in self._values(rows):
            bins = Bins.fit(known.get(name, values), self.encoders.get(name))
            if len(bins.values):
                proportions = bins.proportions(values, counts, self.unknown_ids.get(name))
                self.fields[name] = bins, bin_shares(proportions, groups)

    def state(self) -> JsonObject:
        """Return the shares as JSON values."""
        return {
            name: {
                **shares._asdict(),
                "values": bins.values.tolist(),
                "texts": bins.texts,
                "mean": shares.mean.round(5).tolist(),
                "variance": shares.variance.round(12).tolist(),
            }
            for name, (bins, shares) in self.fields.items()
        }

    def restore(self, state: JsonObject) -> None:
        """Load what `state` returned. Raises InputError if it is not valid."""
        require(state, Each(SHAPE))
        for name, field in state.items():
            values, mean, variance = (np.array(field[key]) for key in ("values", "mean", "variance"))
            sizes = {len(values) + 2, len(field["texts"]), len(mean), len(variance)}
            if len(sizes) > 1 or not len(values) or (np.diff(values) <= 0).any():
                raise InputError(name, "must have ascending values, each with a text and a share")
            self.fields[name] = Bins(values, field["texts"]), BinShares(mean, variance, field["rows"], field["groups"])

    def proportions(self, rows: PredictedRows) -> dict[str, np.ndarray]:
        return {
            name: self.fields[name][0].proportions(values, counts, self.unknown_ids.get(name))
            for name, values, counts in self._values(rows)
            if name in self.fields
        }

    def _values(self, rows: PredictedRows) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield each name, its values (S,) of all rows, end to end, and the number of values of each row (N,)."""
        yield from self._values_of_fields(rows.sequences)
        if self.positive is None:
            title, probabilities = "probability of the prediction", rows.probabilities.max(axis=1)
        else:
            title, probabilities = "probability of the positive label", rows.probabilities[:, self.positive]
        # The spaces keep these names apart from those of fields. Smaller differences of probabilities decide nothing.
        for name, values in {LENGTH: rows.lengths, title: probabilities.round(3)}.items():
            yield name, values.astype(np.float64), np.ones(len(values), np.int64)

    def _values_of_fields(self, sequences: Ragged) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for name, encoder in self.encoders.items():
            is_static = encoder.field.static
            values = encoder.original_values(sequences.static if is_static else sequences.fields)
            counts = np.ones(len(sequences), np.int64) if is_static else sequences.lengths
            if values.dtype.kind == "f":
                for channel in range(min(values.shape[1], MAX_CHANNELS)):
                    yield f"{name}[{channel}]" if values.shape[1] > 1 else name, values[:, channel], counts
            elif values.ndim == 2:
                is_value, row = values != 0, np.repeat(np.arange(len(counts)), counts)  # 0 is the padding of a set
                yield name, values[is_value], np.bincount(row, is_value.sum(axis=1), len(counts)).astype(np.int64)
            else:
                yield name, values, counts


class PredictedRows(NamedTuple):
    """N predicted rows: (N,) tokens before truncation, (N, C) probabilities, and (N,) group keys or None."""

    sequences: Ragged
    lengths: np.ndarray
    probabilities: np.ndarray
    groups: np.ndarray | None
