"""Numbers → scaled channels; where values may be missing, also which were there and how long ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.fields import Field
from seqclf.data.moments import Moments, Sample
from seqclf.data.rows import flatten
from seqclf.errors import InputError
from seqclf.state import require

SPELLED = 3  # channels of a step, where a person reads them
DIGITS = np.uint64(2**64 - 2**20)  # of the 52 bits after the point the first 32: 1 in 4e9
HALF_DIGIT = np.uint64(2**19)
TO_DEVIATION = 1.349  # quartiles of a normal distribution are this many deviations apart


class Scaler:
    """Numbers → channels of mean 0 and deviation 1 (`scale: standard`), of median 0 and quartiles as far apart as those
    of such (`robust`, from a sample of the steps), or as they are (`none`).

    `log`: signed log(1 + |x|) first. `clip`: scaled values further from 0 are moved to there, so that a slip of the
    pen does not drown its step. `by`: scaled within each value of a category field, for tables in which one column
    holds many kinds of measurements; values that were rare in training are scaled over all. Missing values become the
    mean (`missing: mean`), the last one seen (`last`; before it the mean) or `zero`; `mask` adds a channel that is 1
    where a value was seen, and `since` the log of the steps, or of the seconds of a time field, since it was
    (Che et al., Recurrent Neural Networks for Multivariate Time Series with Missing Values, 2018).
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.others = others
        self.width = field.width or 1
        self.missing: str = field.option("missing")
        self.since: str | None = field.option("since")
        channels = self.width * (2 if self.since else 1)
        self.mean, self.deviation = np.zeros((1, channels)), np.ones((1, channels))

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    def bits(self, column: pa.Array) -> np.ndarray:
        """(S, W): numbers are equal that agree in ten digits.

        The model gets seven digits (float32) of the scaled number; three more keep apart what differs by little beside
        its offset, such as times since 1970. Ten rather than all, so that a sum in another order or a file of 15 digits
        hides no copy. With `scale: none` the model gets the number as float32, and that is compared.
        """
        values = np.ascontiguousarray(flatten(column, self.field)[1], np.float64) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan  # there are many
        if self.field.option("scale") == "none" and not self.field.option("log"):
            values = values.astype(np.float32).astype(np.float64)
        return (values.view(np.uint64) + HALF_DIGIT) & DIGITS

    def fit(self, batches: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        scale = self.field.option("scale")
        groups = self.others[self._by].spec()["size"] if self._by else 1
        moments, sample = Moments(groups, self.mean.shape[1]), Sample()
        if scale == "none":
            return
        others = [self._by, None if self.since == "steps" else self.since]
        needed = [self.field.name, *(name for name in others if name is not None)]
        for batch in batches(*needed):
            _, _, values = self._raw(batch)
            of = self._groups(batch, True)
            if scale == "robust":
                sample.update(values if of is None else np.column_stack([values, of]))
            else:
                moments.update(values, of)
        if scale == "robust":
            mean, deviation, count = _robust(sample, groups, self._by is not None)
        else:
            mean, deviation, count = moments.mean, moments.deviation(), moments.count
        self.mean, self.deviation = _usable(mean, deviation, count)

    @property
    def _by(self) -> str | None:
        return self.field.option("by")

    def _groups(self, batch: pa.RecordBatch, staged: bool) -> np.ndarray | None:
        """(S,) ids of the category that numbers are scaled by."""
        return None if self._by is None else self.others[self._by].encode(batch, staged)[1][self._by]

    def _raw(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lengths, (S, W) whether each value was seen, and the unscaled channels, NaN where one was not."""
        lengths, steps = flatten(batch.column(self.field.name), self.field)
        values = np.asarray(steps)
        if self.field.option("log"):
            values = np.sign(values) * np.log1p(np.abs(values))
        seen = ~np.isnan(values) if self.missing != "refuse" else np.ones(values.shape, bool)
        if self.since is None:
            return lengths, seen, values
        clock = np.arange(len(values), dtype=np.float64)
        if self.since != "steps":
            clock = pc.list_flatten(batch.column(self.since)).to_numpy(zero_copy_only=False)
        before = _last_seen(seen, lengths, inclusive=False)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        ago = clock[:, None] - clock[np.where(before < 0, starts[:, None], before)]
        return lengths, seen, np.concatenate([values, np.log1p(np.maximum(0.0, ago))], axis=1)

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        lengths, seen, raw = self._raw(batch)
        groups = self._groups(batch, staged)
        own = 0 if groups is None or len(self.mean) == 1 else groups  # one for all where nothing is scaled
        mean, deviation = self.mean[own], self.deviation[own]
        scaled = (raw - mean) / deviation
        scaled[:, : self.width] = self._clipped(scaled[:, : self.width])
        if self.missing == "refuse":
            return lengths, {self.field.name: scaled.astype(np.float32)}
        values = scaled[:, : self.width]
        if self.missing == "last":
            before = _last_seen(seen, lengths, inclusive=True)
            filled = np.where(before < 0, np.nan, np.take_along_axis(values, np.maximum(before, 0), axis=0))
        else:
            filled = values
        if self.missing == "zero":
            absent = self._clipped(np.broadcast_to((-mean / deviation)[..., : self.width], values.shape))
        else:
            absent = np.zeros(1)
        parts = [np.where(np.isnan(filled), absent, filled)]
        if self.field.option("mask"):
            parts.append(seen.astype(np.float64))
        parts.append(scaled[:, self.width :])
        return lengths, {self.field.name: np.concatenate(parts, axis=1).astype(np.float32)}

    def _clipped(self, scaled: np.ndarray) -> np.ndarray:
        limit = self.field.option("clip")
        return scaled if limit is None else np.clip(scaled, -limit, limit)

    def spell(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """The values as they were, missing ones filled; at the limit of `clip`, ≤ or ≥ it."""
        groups = 0 if self._by is None or len(self.mean) == 1 else fields[self._by]
        shown = slice(0, min(self.width, SPELLED))
        scaled = fields[self.field.name][:, shown]
        values = scaled * self.deviation[groups][..., shown] + self.mean[groups][..., shown]
        if self.field.option("log"):
            values = np.sign(values) * np.expm1(np.abs(values))
        more = " …" if self.width > SPELLED else ""
        limit = np.float32(self.field.option("clip") or np.inf)
        signs = np.select([scaled <= -limit, scaled >= limit], ["≤", "≥"], "")
        rows = zip(signs.tolist(), values.tolist(), strict=True)
        return [" ".join(f"{sign}{value:.4g}" for sign, value in zip(*row, strict=True)) + more for row in rows]

    def spec(self) -> dict[str, Any]:
        masked = self.missing != "refuse" and self.field.option("mask")
        scaled = self.field.option("scale") != "none"
        channels = [scaled] * self.width + [False] * self.width * bool(masked)
        channels += [scaled] * self.width * (self.since is not None)
        return {"name": self.field.name, "kind": "number", "width": len(channels), "scaled": channels}

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"mean": list, "deviation": list})
        self.mean, self.deviation = self._scale(state, "mean"), self._scale(state, "deviation")
        if (self.deviation <= 0).any():
            raise InputError("deviation must be numbers above 0")

    def _scale(self, state: dict[str, Any], key: str) -> np.ndarray:
        """(groups, channels) of a state."""
        groups = self.others[self._by].spec()["size"] if self._by else 1
        try:
            scale = np.array(state[key], np.float64)
        except (TypeError, ValueError, OverflowError):
            scale = np.empty(0)
        if scale.shape not in {(1, self.mean.shape[1]), (groups, self.mean.shape[1])} or not np.isfinite(scale).all():
            raise InputError(f"{key} must be {groups} lists of {self.mean.shape[1]} numbers")
        return scale


def _last_seen(seen: np.ndarray, lengths: np.ndarray, inclusive: bool) -> np.ndarray:
    """(S, W) the step that last held a value, up to or before each step of its own sequence; -1 where none did."""
    places = np.where(seen, np.arange(len(seen))[:, None], -1)
    if not inclusive:
        places = np.concatenate([np.full((1, seen.shape[1]), -1), places[:-1]])
    found = np.maximum.accumulate(places, axis=0)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
    return np.where(found >= starts, found, -1)


def _robust(sample: Sample, groups: int, grouped: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, scaled distance of the quartiles, and how many values there were: (groups, channels) each."""
    found = sample.rows
    rows = found if found is not None else np.empty((0, 1 + grouped))
    values, of = (rows[:, :-1], rows[:, -1].astype(np.int64)) if grouped else (rows, np.zeros(len(rows), np.int64))
    middle, spread, count = (np.zeros((groups, values.shape[1])) for _ in range(3))
    for number in np.unique(of):
        own = values[of == number]
        for channel in range(values.shape[1]):
            given = own[~np.isnan(own[:, channel]), channel]
            if len(given):
                low, middle[number, channel], high = np.quantile(given, (0.25, 0.5, 0.75))
                spread[number, channel] = (high - low) / TO_DEVIATION or given.std()
                count[number, channel] = len(given)
    return middle, spread, count


def _usable(mean: np.ndarray, deviation: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales to divide by: a group without values is scaled as all values are, and a constant is left as it is."""
    total = np.maximum(1, count.sum(axis=0))
    overall = (mean * count).sum(axis=0) / total
    spread = np.sqrt(((deviation**2 + (mean - overall) ** 2) * count).sum(axis=0) / total)
    few = count < 2 if len(mean) > 1 else np.zeros_like(count, bool)
    mean, deviation = np.where(few, overall, mean), np.where(few, spread, deviation)
    return mean, np.where(deviation > 1e-12 * np.maximum(1, abs(mean)), deviation, 1.0)
