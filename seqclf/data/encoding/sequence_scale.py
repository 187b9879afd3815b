"""Scale of single sequences: values by mean and deviation of their sequence, and both of these as features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.encoding.scales import ROUNDING, SAMPLE_ROWS, Sample
from seqclf.errors import InputError
from seqclf.system.state_validation import require

RESOLUTION_QUANTILE = 0.05
SAMPLED_NUMBERS = 20_000_000  # of all channels; limits the memory of fitting fields of many channels
SAME = 1e-6  # relative differences below it are those of rounded files and of float32
MAX_SQUARED, MIN_SQUARED = 1e140, 1e-140  # squares of numbers within are exact enough in float64


class ScaledSequences(NamedTuple):
    """N sequences of S tokens and W channels, each scaled by its mean and deviation over the values it has.

    `lengths`: (N,). `values`: (S, W), 0 in sequences that do not vary, NaN where a value is missing. `mean`,
    `deviation`: (N, W) in units of the data, NaN for a sequence without values.
    """

    lengths: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def zeros(self) -> np.ndarray:
        """(S, W) scaled values of a number 0.

        No scaled value of n tokens exceeds sqrt(n), so 0 is limited to that: it may be far outside of a sequence that
        hardly varies.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            zero = np.where(self.mean == 0, 0.0, -self.mean / self.deviation)
        limit = np.sqrt(self.lengths)[:, None]
        return np.repeat(np.clip(np.nan_to_num(zero, nan=0.0), -limit, limit), self.lengths, axis=0)


def scale_sequences(values: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> ScaledSequences:
    """Scale each sequence by itself.

    `values`: (S, W) float64 of rows end to end. `seen`: (S, W) mask of the values that are present. `lengths`: (N,).
    The result for a sequence does not depend on the other sequences, bit by bit.

    >>> values = np.array([[1.0], [3.0], [500.0], [500.0]])
    >>> scaled = scale_sequences(values, ~np.isnan(values), np.array([2, 2]))
    >>> scaled.values[:, 0].tolist(), scaled.mean[:, 0].tolist(), scaled.deviation[:, 0].tolist()
    ([-1.0, 1.0, 0.0, 0.0], [2.0, 500.0], [1.0, 0.0])
    """
    lengths = lengths[lengths > 0]  # reduceat has no sum of nothing
    starts = np.cumsum(lengths) - lengths
    complete = bool(seen.all())
    count = lengths[:, None] if complete else np.add.reduceat(seen, starts, axis=0, dtype=np.int64)
    present = values if complete else np.where(seen, values, 0.0)
    exponents = _exponents(present, starts)
    if exponents is not None:
        present = np.ldexp(present, np.repeat(-exponents, lengths, axis=0))
    divisor = np.maximum(1, count)
    missing = None if complete else ~seen
    centred, mean = _centred(present, missing, lengths, divisor)
    deviation = np.sqrt(np.add.reduceat(np.square(centred), starts, axis=0) / divisor)
    # The deviation of a constant is rounding error, which grows with its magnitude.
    varies = deviation > ROUNDING * np.abs(mean)
    deviation = np.where(varies, deviation, 0.0)
    centred *= np.repeat(np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies), lengths, axis=0)
    if missing is not None:
        np.copyto(centred, np.nan, where=missing)
        mean[count == 0] = deviation[count == 0] = np.nan
    if exponents is not None:
        mean, deviation = np.ldexp(mean, exponents), np.ldexp(deviation, exponents)
    return ScaledSequences(lengths, centred, mean, deviation)


def _centred(
    values: np.ndarray, missing: np.ndarray | None, lengths: np.ndarray, divisor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(S, W) values minus the mean of their sequence, 0 where one is missing, and the (N, W) means.

    `divisor`: (N, W) or (N, 1) values of each sequence.
    """
    starts = np.cumsum(lengths) - lengths
    mean = np.zeros((len(lengths), values.shape[1]))
    centred = values
    # Centred twice: the first mean is rounded, which counts where values vary little around a large offset.
    for _ in range(2):
        rest = np.add.reduceat(centred, starts, axis=0) / divisor
        mean += rest
        repeated = np.repeat(rest, lengths, axis=0)
        centred = np.subtract(centred, repeated, out=repeated)  # fresh memory costs more than the arithmetic
        if missing is not None:
            np.copyto(centred, 0.0, where=missing)
    return centred, mean


def _exponents(values: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
    """(N, W) powers of two that bring each sequence into the range of safe squares, None if all are within it.

    A power of two changes no digit, so that ordinary sequences scale the same with and without extreme batch mates.
    """
    largest = np.maximum.reduceat(np.abs(values), starts, axis=0)
    if not ((largest > MAX_SQUARED) | ((largest < MIN_SQUARED) & (largest > 0))).any():
        return None
    return np.frexp(largest)[1]


@dataclass(frozen=True)
class SequenceLevels:
    """Mean and deviation of a sequence ↔ two features per channel, on log scales with mean 0 and deviation 1.

    log-deviation = log(max(deviation, `floor`)), log-mean = sign(mean) · log(1 + |mean| / `resolution`). `floor`: (W,)
    smallest deviation of the training sequences that vary, so that constants are close to them. `resolution`: (W,) 5 %
    quantile of the root mean squares of the training sequences. `mean`, `deviation`: (2, W) of both features.

    >>> levels = unit_levels(1)
    >>> levels.features(np.array([[np.e - 1]]), np.array([[np.e]])).round(6).tolist()
    [[1.0, 1.0]]
    """

    floor: np.ndarray
    resolution: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def logs(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """(N, 2, W) log-deviation and log-mean of sequences with (N, W) means and deviations."""
        with np.errstate(over="ignore"):
            ratio = np.minimum(np.abs(mean) / self.resolution, np.finfo(np.float64).max)
        return np.stack([np.log(np.maximum(deviation, self.floor)), np.sign(mean) * np.log1p(ratio)], axis=1)

    def features(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """(N, 2 W) features, first those of the deviations. A sequence without values has the mean feature, 0."""
        with np.errstate(over="ignore"):
            features = (self.logs(mean, deviation) - self.mean) / self.deviation
        return np.nan_to_num(features, nan=0.0).reshape(len(mean), -1)

    def inverse(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, W) means and deviations of (N, 2 W) features. A constant has the deviation `floor`."""
        logs = features.reshape(len(features), 2, -1) * self.deviation + self.mean
        with np.errstate(over="ignore"):
            return np.sign(logs[:, 1]) * np.expm1(np.abs(logs[:, 1])) * self.resolution, np.exp(logs[:, 0])

    def state(self) -> dict[str, list]:
        """Return plain lists, for `stored_levels`."""
        return {name: getattr(self, name).tolist() for name in ("floor", "resolution", "mean", "deviation")}


def stored_levels(state: Mapping[str, Any], channels: int) -> SequenceLevels:
    """Return the levels of a `state`. Raises InputError if no field of that many channels can have it."""
    shapes = {"floor": (channels,), "resolution": (channels,), "mean": (2, channels), "deviation": (2, channels)}
    arrays: dict[str, np.ndarray] = {}
    for key, shape in shapes.items():
        require(state, {key: list}, "levels")
        try:
            array = np.array(state[key], np.float64)
        except (TypeError, ValueError, OverflowError):
            array = np.empty(0)
        if array.shape != shape or not np.isfinite(array).all():
            raise InputError(f"levels.{key}", f"must be {' lists of '.join(map(str, shape))} numbers")
        if key != "mean" and (array <= 0).any():  # would divide by 0, or have no logarithm
            raise InputError(f"levels.{key}", "must be numbers above 0")
        arrays[key] = array
    return SequenceLevels(**arrays)


def unit_levels(channels: int) -> SequenceLevels:
    """Return levels that are not fit yet."""
    ones = np.ones(channels)
    return SequenceLevels(ones, ones, np.zeros((2, channels)), np.ones((2, channels)))


def fit_levels(read: Iterable[ScaledSequences], channels: int) -> SequenceLevels:
    """Fit the features to training sequences in one pass. Their statistics are kept in memory as a sample only."""
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
    """Fit resolution and scales of one channel to (n,) means and deviations of sequences. Changes `levels`."""
    sizes = np.hypot(mean, deviation)  # root mean squares
    if (sizes > 0).any():
        levels.resolution[channel] = np.quantile(sizes[sizes > 0], RESOLUTION_QUANTILE)
    one = SequenceLevels(levels.floor[[channel]], levels.resolution[[channel]], np.zeros((2, 1)), np.ones((2, 1)))
    logs = one.logs(mean[:, None], deviation[:, None])[:, :, 0]
    levels.mean[:, channel] = logs.mean(axis=0)
    spread = logs.std(axis=0)
    # Amplified rounding errors would number the sequences, which a model learns by heart. Means are compared with the
    # deviations, as a large offset may be common to all sequences.
    differ = np.abs(mean - np.median(mean)) > SAME * deviation
    varies = [spread[0] > SAME, differ.mean() > RESOLUTION_QUANTILE and spread[1] > ROUNDING * np.abs(logs[:, 1]).max()]
    levels.deviation[:, channel] = np.where(varies, spread, 1.0)
