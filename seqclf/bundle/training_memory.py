"""Memory of a bundle: shares of values, lengths and probabilities in its data, with which new rows are compared.

They are those of rows that the model did not train on: training rows have no unknown value, because they made the
vocabulary, and the model is too sure of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqclf.bundle.bin_shifts import MIN_ROWS, BinShares, bin_shares, moved_bins
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import kind_of
from seqclf.data.ragged import Ragged, take
from seqclf.documents.formatting import percent, plain_number, shortened
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject, JsonResult
from seqclf.system.state_validation import POSITIVE, SIZE, Each, Where, require

MAX_VALUES = 19  # bins of a field, without those of other and of unknown values; odd, so that one is at the median
MAX_CHANNELS = 4  # first channels of a vector
MAX_ROWS = 20_000  # rows of a sample
MIN_DISTANCE = 0.05  # a smaller distance moves few predictions, but is beyond chance in a million rows
# Columns of a sample; the spaces keep them apart from fields.
SAMPLING, GROUPS, NUMBER = "sampling key", "group key", "row number"
RATE, DRAWN = "sampling rate", "rows drawn"  # further keys of the dict that `added_since` returns
LENGTH = "sequence length"  # name of the lengths before truncation
SHARE = Where(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")
SHAPE = {"values": [float], "texts": [str], "mean": [SHARE], "variance": [SHARE], "rows": SIZE, "groups": POSITIVE}


@dataclass(frozen=True, kw_only=True)
class Moved(JsonResult):
    """A field of new data that differs from the memory by more than chance.

    `distance`: total variation distance, half the sum of the absolute differences of the shares of its bins. `of`:
    "median", or the value whose share moved most. `before`, `after`: median or share in the memory and in the new data.
    """

    field: str
    distance: float
    of: str
    before: float
    after: float

    def __str__(self) -> str:
        text = plain_number if self.of == "median" else percent
        return f"{self.field}: {self.of} {text(self.before)} → {text(self.after)} (distance {self.distance:.2f})"


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

    def moved(self, field: str, before: np.ndarray, after: np.ndarray) -> Moved:
        """Return how a field moved. `before`, `after`: (K + 2,) means of the proportions."""
        old, new = (np.diff(mean, prepend=0.0) if self.is_number else mean for mean in (before, after))
        bin, distance = int(np.abs(new - old).argmax()), round(float(np.abs(new - old).sum()) / 2, 4)
        of, pair = shortened(self.texts[bin], 40), [old[bin], new[bin]]
        if self.is_number and bin < len(self.values):
            medians = [self.values[mean[:-2].searchsorted(mean[-3] / 2)] for mean in (before, after)]
            # Numbers in the outer bins have any distance from their values, so no median lies there for certain.
            if medians[0] != medians[1] and medians[1] in self.values[1:-1]:
                of, pair = "median", medians
        start, end = (float(f"{value:.6g}") for value in pair)
        return Moved(field=field, distance=distance, of=of, before=start, after=end)

    @property
    def is_number(self) -> bool:
        return self.values.dtype.kind == "f"


def id_texts(ids: np.ndarray, encoder: FieldEncoder) -> list[str]:
    """Return the text of each of the ids (S,) of a field."""
    tokens = ids[:, None] if kind_of(encoder.spec()).has_several else ids
    return [shortened(text, 30) for text in encoder.decode({encoder.field.name: tokens})]


class TrainingMemory:
    """Shares of the bins of each field, of the lengths and of the probabilities.

    `fields`: dict name → bins and their shares, empty for a bundle without a memory.
    """

    def __init__(self, encoders: Mapping[str, FieldEncoder], classes: Sequence[str], positive: str | None):
        self.encoders = encoders
        self.positive = None if positive is None else classes.index(positive)
        self.unknown_ids = {name: encoder.unknown_id for name, encoder in encoders.items()}
        self.fields: dict[str, tuple[Bins, BinShares]] = {}

    def fit(self, rows: Rows, training: Ragged) -> None:
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
        """Return the memory as JSON values."""
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

    def proportions(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return dict name → (N, B) float32 proportion of each row's values in each bin."""
        return {
            name: self.fields[name][0].proportions(values, counts, self.unknown_ids.get(name))
            for name, values, counts in self._values(rows)
            if name in self.fields
        }

    def _values(self, rows: Rows) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
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


class Rows(NamedTuple):
    """N predicted rows: (N,) tokens before truncation, (N, C) probabilities, and (N,) group keys or None."""

    sequences: Ragged
    lengths: np.ndarray
    probabilities: np.ndarray
    groups: np.ndarray | None


class RowSample:
    """Random sample of up to `MAX_ROWS` rows of new data, each equally likely.

    `rate`: probability of a row. `drawn`: number of rows so far, of which some are in the sample.
    """

    def __init__(self, memory: TrainingMemory):
        self.memory, self.rate, self.random, self.drawn = memory, 1.0, np.random.default_rng(0), 0
        # Proportions by name, and the keys, groups and numbers of the sampled rows, in the order of the rows.
        self.columns: dict[str, np.ndarray] = {}

    def add(self, rows: Rows) -> None:
        """Measure the next rows. Either all calls have groups, or none."""
        if not self.memory.fields:
            return
        keys = self._next_keys(len(rows.lengths))
        chosen = np.flatnonzero(keys < self.rate)
        numbers = self.drawn - len(keys) + chosen
        groups = None if rows.groups is None else rows.groups[chosen]
        rows = Rows(take(rows.sequences, chosen), rows.lengths[chosen], rows.probabilities[chosen], groups)
        found = {**self.memory.proportions(rows), SAMPLING: keys[chosen], NUMBER: numbers}
        if groups is not None:
            found[GROUPS] = groups
        self._append(found)
        while len(self.columns[SAMPLING]) > MAX_ROWS:
            self.rate /= 2
            self._append({})

    def added_since(self, drawn: int) -> dict[str, np.ndarray]:
        """Return columns of the sampled rows after the first `drawn` rows, which `restore` adds to an equal sample."""
        start = self.columns[NUMBER].searchsorted(drawn) if self.columns else 0
        found = {name: part[start:] for name, part in self.columns.items()}
        return found | {RATE: np.array(self.rate), DRAWN: np.array(self.drawn)}

    def restore(self, added: dict[str, np.ndarray]) -> None:
        """Add what another sample returned, as if its rows were measured again."""
        self._next_keys(int(added.pop(DRAWN)) - self.drawn)
        self.rate = float(added.pop(RATE))
        self._append(added)

    def _next_keys(self, rows: int) -> np.ndarray:
        self.drawn += rows
        return self.random.random(rows)

    def _append(self, found: Mapping[str, np.ndarray]) -> None:
        """Append columns of rows, and remove the rows whose key is not below the rate."""
        for name, part in found.items():
            self.columns[name] = np.concatenate([self.columns.get(name, part[:0]), part])
        if self.columns and not (is_kept := self.columns[SAMPLING] < self.rate).all():
            self.columns = {name: part[is_kept] for name, part in self.columns.items()}

    def moved(self) -> list[Moved]:
        """Return the fields that moved, the most distant one first. Fewer than `MIN_ROWS` rows show nothing."""
        moved, fields = [], self.memory.fields
        tests = sum(len(bins.texts) for bins, _ in fields.values())
        for name, (bins, old) in fields.items():
            proportions = self.columns.get(name)
            if proportions is None or len(proportions) < MIN_ROWS:
                continue
            new = bin_shares(proportions, self.columns.get(GROUPS))
            if moved_bins(old, new, tests).any():
                moved.append(bins.moved(name, old.mean, new.mean))
        return sorted((each for each in moved if each.distance >= MIN_DISTANCE), key=lambda each: -each.distance)
