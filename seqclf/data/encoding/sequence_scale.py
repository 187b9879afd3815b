"""Scale each sequence by its own mean and standard deviation, and turn both numbers into features of the sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.encoding.scales import ROUNDING, SAMPLE_ROWS, Sample, stored_array

RESOLUTION_QUANTILE = 0.05
SAMPLED_NUMBERS = 20_000_000  # maximum count of sampled numbers over all channels, which limits the memory for fitting
SAME = 1e-6  # if two numbers have a smaller relative difference, the difference is a rounding error


class ScaledSequences(NamedTuple):
    """N sequences, each scaled by its own mean and standard deviation, with S tokens in total and W channels.

    `lengths`: (N,). `values`: (S, W), 0 in a constant sequence, NaN where missing. `mean`, `deviation`: (N, W) in units
    of the data, NaN for a sequence without values.
    """

    lengths: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def zeros(self) -> np.ndarray:
        """Return the (S, W) values that the number 0 would have after scaling, within ±sqrt(n) for n tokens.

        No scaled value is larger. Unclipped, 0 would be huge where values vary little around a large mean.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            zero = np.where(self.mean == 0, 0.0, -self.mean / self.deviation)
        limit = np.sqrt(self.lengths)[:, None]
        return np.repeat(np.clip(np.nan_to_num(zero, nan=0.0), -limit, limit), self.lengths, axis=0)


def scale_sequences(values: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> ScaledSequences:
    """Scale each sequence by its own mean and standard deviation.

    `values`: (S, W) float64. `seen`: (S, W) mask of present values. `lengths`: (N,). Other sequences do not change the
    result, not even in the last bit. Row checks reject values beyond float32, so squares do not overflow.

    >>> values = np.array([[1.0], [3.0], [500.0], [500.0]])
    >>> scaled = scale_sequences(values, ~np.isnan(values), np.array([2, 2]))
    >>> scaled.values[:, 0].tolist(), scaled.mean[:, 0].tolist(), scaled.deviation[:, 0].tolist()
    ([-1.0, 1.0, 0.0, 0.0], [2.0, 500.0], [1.0, 0.0])
    """
    lengths = lengths[lengths > 0]  # reduceat cannot sum over an empty sequence
    starts = np.cumsum(lengths) - lengths
    complete = bool(seen.all())
    count = lengths[:, None] if complete else np.add.reduceat(seen, starts, axis=0, dtype=np.int64)
    present = values if complete else np.where(seen, values, 0.0)
    divisor = np.maximum(1, count)
    missing = None if complete else ~seen
    centred, mean = _centred(present, missing, lengths, divisor)
    deviation = np.sqrt(np.add.reduceat(np.square(centred), starts, axis=0) / divisor)
    # The computed standard deviation of constant values is a rounding error that is proportional to the constant.
    varies = deviation > ROUNDING * np.abs(mean)
    deviation = np.where(varies, deviation, 0.0)
    centred *= np.repeat(np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies), lengths, axis=0)
    if missing is not None:
        np.copyto(centred, np.nan, where=missing)
        mean[count == 0] = deviation[count == 0] = np.nan
    return ScaledSequences(lengths, centred, mean, deviation)


def _centred(
    values: np.ndarray, missing: np.ndarray | None, lengths: np.ndarray, divisor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the (S, W) values minus the mean of their sequence, 0 where missing, and the (N, W) means.

    `divisor`: (N, W) or (N, 1) number of present values of each sequence.
    """
    starts = np.cumsum(lengths) - lengths
    mean = np.zeros((len(lengths), values.shape[1]))
    centred = values
    # Twice, because the rounding error of the mean matters for values that vary little around a large offset.
    for _ in range(2):
        rest = np.add.reduceat(centred, starts, axis=0) / divisor
        mean += rest
        repeated = np.repeat(rest, lengths, axis=0)
        centred = np.subtract(centred, repeated, out=repeated)  # reuses the memory of `repeated`
        if missing is not None:
            np.copyto(centred, 0.0, where=missing)
    return centred, mean


@dataclass(frozen=True)
class SequenceLevels:
    """Converts the mean and the standard deviation of a sequence to two features per channel, and back.

    The features are log(max(deviation, `floor`)) and sign(mean) · log(1 + |mean| / `resolution`), each scaled to mean 0
    and standard deviation 1 over the training sequences.

    `floor`: (W,) smallest standard deviation above 0 in training, for constant sequences. `resolution`: (W,) 5 %
    quantile of the root mean squares in training. `mean`, `deviation`: (2, W) of both features in training.

    >>> levels = unit_levels(1)
    >>> levels.features(np.array([[np.e - 1]]), np.array([[np.e]])).round(6).tolist()
    [[1.0, 1.0]]
    """

    floor: np.ndarray
    resolution: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def logs(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Return the (N, 2, W) log-deviations and log-means of sequences with (N, W) means and standard deviations."""
        with np.errstate(over="ignore"):
            ratio = np.minimum(np.abs(mean) / self.resolution, np.finfo(np.float64).max)
        return np.stack([np.log(np.maximum(deviation, self.floor)), np.sign(mean) * np.log1p(ratio)], axis=1)

    def features(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Return the (N, 2 W) scaled features of sequences: log-deviations, then log-means; 0 without values."""
        with np.errstate(over="ignore"):
            features = (self.logs(mean, deviation) - self.mean) / self.deviation
        return np.nan_to_num(features, nan=0.0).reshape(len(mean), -1)

    def inverse(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the (N, W) means and standard deviations of (N, 2 W) features; a constant sequence has `floor`."""
        logs = features.reshape(len(features), 2, -1) * self.deviation + self.mean
        with np.errstate(over="ignore"):
            return np.sign(logs[:, 1]) * np.expm1(np.abs(logs[:, 1])) * self.resolution, np.exp(logs[:, 0])

    def state(self) -> dict[str, list]:
        """Return the arrays of the levels as plain lists, from which `stored_levels` restores the levels."""
        return {name: getattr(self, name).tolist() for name in ("floor", "resolution", "mean", "deviation")}


def stored_levels(state: Mapping[str, Any], channels: int) -> SequenceLevels:
    """Restore levels from what `SequenceLevels.state` returned. Raises InputError if it does not fit `channels`."""
    shapes = {"floor": (channels,), "resolution": (channels,), "mean": (2, channels), "deviation": (2, channels)}
    named = {f"levels.{key}": value for key, value in state.items()}  # the keys are the names of the lists in errors
    return SequenceLevels(
        **{key: stored_array(named, f"levels.{key}", shape, positive=key != "mean") for key, shape in shapes.items()}
    )


def unit_levels(channels: int) -> SequenceLevels:
    """Return levels that are not fit yet, with `floor`, `resolution` and standard deviations of 1."""
    ones = np.ones(channels)
    return SequenceLevels(ones, ones, np.zeros((2, channels)), np.ones((2, channels)))


def fit_levels(read: Iterable[ScaledSequences], channels: int) -> SequenceLevels:
    """Fit the levels on the training sequences in one pass. A sample of means and deviations is in memory."""
    sample = Sample(min(SAMPLE_ROWS, max(1_000, SAMPLED_NUMBERS // (2 * channels))))
    floor = np.full(channels, np.inf)
    for sequences in read:
        sample.update(np.concatenate([sequences.mean, sequences.deviation], axis=1))
        positive = np.where(sequences.deviation > 0, sequences.deviation, np.inf)
        floor = np.minimum(floor, positive.min(axis=0, initial=np.inf))
    levels = unit_levels(channels)
    rows = sample.rows
    levels = SequenceLevels(np.where(np.isfinite(floor), floor, 1.0), levels.resolution, levels.mean, levels.deviation)
    for channel in range(channels if rows is not None else 0):
        mean, deviation = rows[:, channel], rows[:, channels + channel]  # type: ignore[index]
        present = ~np.isnan(mean)
        if present.any():
            _fit_channel(levels, channel, mean[present], deviation[present])
    return levels


def _fit_channel(levels: SequenceLevels, channel: int, mean: np.ndarray, deviation: np.ndarray) -> None:
    """Fit the resolution and both scales of one channel in place, by (n,) means and deviations of sampled sequences."""
    sizes = np.hypot(mean, deviation)  # root mean square of each sequence
    if (sizes > 0).any():
        levels.resolution[channel] = np.quantile(sizes[sizes > 0], RESOLUTION_QUANTILE)
    one = SequenceLevels(levels.floor[[channel]], levels.resolution[[channel]], np.zeros((2, 1)), np.ones((2, 1)))
    logs = one.logs(mean[:, None], deviation[:, None])[:, :, 0]
    levels.mean[:, channel] = logs.mean(axis=0)
    spread = logs.std(axis=0)
    # A feature that varies only by rounding errors is not scaled up, or a model could memorize sequences by them. Means
    # differ relative to the deviations, because all sequences may have the same large offset.
    differ = np.abs(mean - np.median(mean)) > SAME * deviation
    varies = [spread[0] > SAME, differ.mean() > RESOLUTION_QUANTILE and spread[1] > ROUNDING * np.abs(logs[:, 1]).max()]
    levels.deviation[:, channel] = np.where(varies, spread, 1.0)
