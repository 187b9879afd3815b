"""Numbers → scaled channels; where values may be missing, also which were there and how long ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.outliers import ROUNDING, mean_and_deviation, suspected, usual_range
from seqclf.data.encoding.running_moments import Moments, Sample
from seqclf.data.schema.fields import Field
from seqclf.data.validation.row_checks import flatten
from seqclf.errors import InputError
from seqclf.system.stored_state import require

LARGEST = 1e30  # of scaled values; what is larger overflows float32 in the model
SPELLED = 3  # channels of a step, where a person reads them
DIGITS = np.uint64(2**64 - 2**20)  # of the 52 bits after the point the first 32: 1 in 4e9
HALF_DIGIT = np.uint64(2**19)
UNSURE = 3  # values of a group that do not show what its usual values are
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
    Values so large that the others would be lost to the precision of float32, such as 1e38 for "no reading" (see
    `usual_range`), do not count for the scale and are moved to the range of the others, unless `scale: none`.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.others = others
        self.width = field.width or 1
        self.missing: str = field.option("missing")
        self.since: str | None = field.option("since")
        channels = self.width * (2 if self.since else 1)
        self.mean, self.deviation = np.zeros((1, channels)), np.ones((1, channels))
        self.limits: tuple[np.ndarray, np.ndarray] | None = None  # where training held extreme values

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    def token_keys(self, column: pa.Array) -> np.ndarray:
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
        if scale == "none":
            return
        groups = self.others[self._by].spec()["size"] if self._by else 1
        moments, sample = Moments(groups, self.mean.shape[1]), Sample()
        for values, of in self._unscaled(batches):
            moments.update(values, of)
            if scale == "robust":
                sample.update(values if of is None else np.column_stack([values, of]))
        grouped = self._by is not None
        statistics = _robust(sample, moments, grouped) if scale == "robust" else _standard(moments)
        doubtful, doubtful_overall = _doubtful(moments)
        second_pass = doubtful.any() or doubtful_overall.any()
        if scale == "standard" and second_pass:
            for values, of in self._unscaled(batches):
                sample.update(values if of is None else np.column_stack([values, of]))
        unlike = np.zeros(doubtful.shape, bool)
        if second_pass:
            measure = _median_and_spread if scale == "robust" else mean_and_deviation
            _without_extremes(statistics, sample, doubtful, grouped, measure)
            unlike = _unlike_others(statistics, sample, doubtful_overall)
        limited = np.isfinite(statistics.lowest) & (statistics.lowest > moments.lowest)
        limited |= np.isfinite(statistics.highest) & (statistics.highest < moments.highest)
        if limited.any():
            self.limits = np.where(limited, statistics.lowest, -np.inf), np.where(limited, statistics.highest, np.inf)
        self.mean, self.deviation = _usable(statistics, unlike)

    def _unscaled(
        self, batches: Callable[..., Iterator[pa.RecordBatch]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Unscaled channels and groups of each batch; see `_raw` and `_groups`."""
        others = [self._by, None if self.since == "steps" else self.since]
        for batch in batches(self.field.name, *(name for name in others if name is not None)):
            yield self._raw(batch)[2], self._groups(batch, True)

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
        if self.limits is not None:
            raw = np.clip(raw, self.limits[0][own], self.limits[1][own])
        with np.errstate(over="ignore"):
            scaled = np.clip((raw - mean) / deviation, -LARGEST, LARGEST)
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

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
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
        state: dict[str, Any] = {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}
        if self.limits is not None:
            for name, limit in zip(("lowest", "highest"), self.limits, strict=True):
                # JSON has no infinity.
                state[name] = [[one if np.isfinite(one) else None for one in row] for row in limit.tolist()]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"mean": list, "deviation": list})
        self.mean, self.deviation = self._scale(state, "mean"), self._scale(state, "deviation")
        if (self.deviation <= 0).any():
            raise InputError("deviation must be numbers above 0")
        if "lowest" in state:
            require(state, {"lowest": list, "highest": list})
            self.limits = self._scale(state, "lowest", -np.inf), self._scale(state, "highest", np.inf)

    def _scale(self, state: dict[str, Any], key: str, null: float | None = None) -> np.ndarray:
        """(groups, channels) of a state. `null`: what null stands for, where it is allowed."""
        groups = self.others[self._by].spec()["size"] if self._by else 1
        try:
            scale = np.array(state[key], np.float64)  # null becomes NaN
        except (TypeError, ValueError, OverflowError):
            scale = np.empty(0)
        absent = np.isnan(scale) if null is not None else np.zeros(scale.shape, bool)
        shapes = {(1, self.mean.shape[1]), (groups, self.mean.shape[1])}
        if scale.shape not in shapes or not np.isfinite(scale[~absent]).all():
            raise InputError(f"{key} must be {groups} lists of {self.mean.shape[1]} numbers")
        return np.where(absent, null, scale) if null is not None else scale

    def extremes(self) -> list[str]:
        """A line for each channel in which training held extreme values, and what is made of them."""
        lines = []
        for number, channel in np.argwhere(np.isfinite(self.limits[0])) if self.limits is not None else ():
            low, high = (limit[number, channel] for limit in self.limits)  # type: ignore[union-attr]
            where = f" channel {channel + 1}" if self.mean.shape[1] > 1 else ""
            where += f" of {self._by} number {number}" if self._by else ""
            lines.append(
                f"field {self.field.name}{where} holds values so large that they would flatten the rest; all beyond "
                f"{low:.4g} to {high:.4g} are moved there: make them missing values, or mend them"
            )
        return lines


def _last_seen(seen: np.ndarray, lengths: np.ndarray, inclusive: bool) -> np.ndarray:
    """(S, W) the step that last held a value, up to or before each step of its own sequence; -1 where none did."""
    places = np.where(seen, np.arange(len(seen))[:, None], -1)
    if not inclusive:
        places = np.concatenate([np.full((1, seen.shape[1]), -1), places[:-1]])
    found = np.maximum.accumulate(places, axis=0)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
    return np.where(found >= starts, found, -1)


@dataclass
class _Statistics:
    """What scales are made of: (groups, channels) each."""

    mean: np.ndarray
    deviation: np.ndarray
    count: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


def _standard(moments: Moments) -> _Statistics:
    extremes = moments.lowest.copy(), moments.highest.copy()
    return _Statistics(moments.mean, moments.deviation(), moments.count, *extremes)


def _robust(sample: Sample, moments: Moments, grouped: bool) -> _Statistics:
    """Median, scaled distance of the quartiles, and how many values there were."""
    middle, spread, count = (np.zeros_like(moments.mean) for _ in range(3))
    for number, channel, given in _columns(sample, grouped):
        middle[number, channel], spread[number, channel] = _median_and_spread(given)
        count[number, channel] = len(given)
    return _Statistics(middle, spread, count, moments.lowest.copy(), moments.highest.copy())


def _median_and_spread(values: np.ndarray) -> tuple[float, float]:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(middle), float((high - low) / TO_DEVIATION or values.std())


def _columns(sample: Sample, grouped: bool) -> Iterator[tuple[int, int, np.ndarray]]:
    """Group, channel and (n,) sampled values of each channel of a group that has some."""
    rows = sample.rows if sample.rows is not None else np.empty((0, 1 + grouped))
    values, of = (rows[:, :-1], rows[:, -1].astype(np.int64)) if grouped else (rows, np.zeros(len(rows), np.int64))
    for number in np.unique(of).tolist():
        own = values[of == number]
        for channel in range(values.shape[1]):
            given = own[~np.isnan(own[:, channel]), channel]
            if len(given):
                yield number, channel, given


def _doubtful(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """(groups, channels), and (channels,) over all groups: whether there may be extreme values, or squares left the
    range of float64. A second pass decides."""
    every = _standard(moments)
    overall = _pooled(every, every.count)
    odd = (every.highest > every.lowest) & ~(np.isfinite(every.deviation) & (every.deviation > 0))
    doubtful = odd | suspected(every.mean, every.deviation, every.lowest, every.highest)
    if len(doubtful) == 1:
        return doubtful, np.zeros(doubtful.shape[1], bool)
    return doubtful, suspected(overall.mean, overall.deviation, overall.lowest, overall.highest)


def _unlike_others(statistics: _Statistics, sample: Sample, doubtful: np.ndarray) -> np.ndarray:
    """(groups, channels) whether a group holds values that are extreme among those of all groups.

    Such groups have no share in the overall scale. One of few values, or a constant, cannot show what its usual values
    are: it is scaled like a group without values, and its extreme values are moved to the range of the others.
    """
    unlike = np.zeros(statistics.count.shape, bool)
    rows = sample.rows
    for channel in np.flatnonzero(doubtful).tolist() if rows is not None else ():
        values = rows[~np.isnan(rows[:, channel]), channel]  # type: ignore[index]
        lowest, highest = statistics.lowest[:, channel], statistics.highest[:, channel]
        limits = usual_range(values, float(lowest.min()), float(highest.max()))
        if limits is None:
            continue
        count = statistics.count[:, channel]
        unlike[:, channel] = (count > 0) & ((lowest < limits[0]) | (highest > limits[1]))
        unsure = unlike[:, channel] & ((count <= UNSURE) | (lowest == highest))
        lowest[unsure], highest[unsure] = limits
        count[unsure] = 0
    return unlike


def _without_extremes(
    statistics: _Statistics,
    sample: Sample,
    doubtful: np.ndarray,
    grouped: bool,
    measure: Callable[[np.ndarray], tuple[float, float]],
) -> None:
    """Where a channel has extreme values (see `extremes`), put in what its other values `measure`."""
    for number, channel, given in _columns(sample, grouped):
        at = number, channel
        if not doubtful[at]:
            continue
        limits = usual_range(given, float(statistics.lowest[at]), float(statistics.highest[at]))
        if limits is not None:
            statistics.lowest[at], statistics.highest[at] = limits
            given = given[(limits[0] <= given) & (given <= limits[1])]
        elif np.isfinite(statistics.deviation[at]) and statistics.deviation[at] > 0:
            continue
        statistics.mean[at], statistics.deviation[at] = measure(given)


@np.errstate(invalid="ignore", over="ignore")  # a deviation that is not finite says so itself
def _pooled(statistics: _Statistics, count: np.ndarray) -> _Statistics:
    """(channels,) over all groups, each with the weight `count`: (groups, channels)."""
    total = np.maximum(1, count.sum(axis=0))
    mean = (np.where(count > 0, statistics.mean, 0.0) * count).sum(axis=0) / total
    own, between = (np.where(count > 0, part, 0.0) for part in (statistics.deviation, statistics.mean - mean))
    deviation = np.sqrt(((own**2 + between**2) * count).sum(axis=0) / total)
    lowest = np.where(count > 0, statistics.lowest, np.inf).min(axis=0)
    highest = np.where(count > 0, statistics.highest, -np.inf).max(axis=0)
    return _Statistics(mean, deviation, total, lowest, highest)


def _usable(statistics: _Statistics, unlike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales to divide by. A group without values is scaled as all values are, except those of the groups in
    `unlike`, (groups, channels); a constant is left as it is."""
    mean, deviation, count = statistics.mean, statistics.deviation, statistics.count
    lowest, highest = statistics.lowest, statistics.highest
    if len(mean) > 1:
        overall = _pooled(statistics, np.where(unlike, 0, count))
        few = count < 2
        mean, deviation = np.where(few, overall.mean, mean), np.where(few, overall.deviation, deviation)
        lowest, highest = np.where(few, overall.lowest, lowest), np.where(few, overall.highest, highest)
    # A constant has no deviation but that of rounding, which grows with its magnitude; units may be as small as any.
    varies = (highest > lowest) & (deviation > ROUNDING * abs(mean))
    return np.where(highest == lowest, lowest, mean), np.where(varies, deviation, 1.0)
