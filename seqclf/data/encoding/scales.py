"""Fit the scales of number channels, per group and without outliers.

A scale consists of a mean and a standard deviation. A robust scale is computed from the median and the quartiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqclf.errors import InputError
from seqclf.system.state_validation import require

# Some outliers are much larger than all other values: fill values such as 1e38, and broken readings.

FILL_VALUE = 1e20  # minimum magnitude of fill values such as 1e20, 9.97e36 and 3.4e38; measurements are smaller
SUSPICIOUS = 1e9  # a few values of at least this magnitude may be broken readings
MAX_SUSPICIOUS_COUNT, MAX_SUSPICIOUS_SHARE = 3, 0.01
JUMP = 1e6  # minimum ratio of the smallest outlier to the largest other value; heavy-tailed values have smaller gaps
MIN_FILL_MAGNITUDE = 999.0  # minimum magnitude of fill values such as -9999 and 1e15, which mean "no reading"
MIN_FILL_RATIO = 10.0  # minimum ratio of the magnitude of a fill value to the magnitude of any other value
PRECISION = float(np.finfo(np.float32).eps)  # relative precision of float32, the type of the model's inputs
ROUNDING = 8 * np.finfo(np.float64).eps


def usual_range(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float] | None:
    """Return the range of the values that are not outliers, or None if there are no outliers.

    Values are outliers only if they make the standard deviation so large that all other values are equal in float32
    after scaling. A large standard deviation alone does not prove outliers, because rare events in noise around 0 also
    cause a large standard deviation. Therefore, the smallest outlier must also have at least `JUMP` times the magnitude
    of the largest other value. In addition, outliers must have a magnitude of at least `FILL_VALUE`. Outliers below
    `FILL_VALUE` must be few, at least `SUSPICIOUS` in magnitude, and far beyond the tail of the other values.

    A number such as 9999 or a power of ten is also an outlier if the number is repeated and much larger than all other
    values (see `_is_fill`).

    `values`: (n,) sample of the values, without NaN. `lowest`: minimum of all values, which the sample may lack.
    `highest`: maximum of all values, which the sample may lack.

    >>> usual_range(np.array([1.0, 2.0, 3.0, 4.0, 1e38]), 1.0, 1e38)
    (1.0, 4.0)
    >>> usual_range(np.array([1.0, 2.0, -9999.0, 4.0, -9999.0]), -9999.0, 4.0)
    (1.0, 4.0)
    >>> usual_range(np.array([1e-17, -2e-17, 1e-17, 1e-17, 50.0]), -2e-17, 50.0) is None
    True
    """
    unsampled = [value for value in (lowest, highest) if not len(values) or not values.min() <= value <= values.max()]
    values = np.append(values, unsampled)
    fills = [value for value in {lowest, highest} if _is_fill(value) and (values == value).sum() > 1]
    usual = values[~np.isin(values, fills)]
    are_few = len(values) / 2 < len(usual) < len(values) and usual.min() < usual.max()
    if are_few and min(map(abs, fills)) >= MIN_FILL_RATIO * np.abs(usual).max():
        return float(usual.min()), float(usual.max())
    magnitudes = np.sort(np.abs(values))
    with np.errstate(over="ignore"):
        jumps = (magnitudes[1:] >= SUSPICIOUS) & (magnitudes[1:] > JUMP * magnitudes[:-1])
    for first_extreme in (np.flatnonzero(jumps) + 1).tolist():
        extreme_count = len(values) - first_extreme
        most = min(MAX_SUSPICIOUS_COUNT, MAX_SUSPICIOUS_SHARE * len(values))
        is_fill = magnitudes[first_extreme] >= FILL_VALUE
        if not is_fill and (extreme_count > most or not _stands_out(magnitudes, first_extreme)):
            continue
        usual = values[np.abs(values) < magnitudes[first_extreme]]
        mean, deviation = mean_and_deviation(usual)
        if ROUNDING * abs(mean) < deviation < PRECISION * mean_and_deviation(values)[1]:
            return float(usual.min()), float(usual.max())
    return None


def _is_fill(value: float) -> bool:
    """Return True for a number that programs write in place of a missing number, such as 9999, -99999 or 1e15.

    >>> [_is_fill(value) for value in (-9999.0, 1e15, 999999999.0, 9990.0, 99.0)]
    [True, True, True, False, False]
    """
    if not MIN_FILL_MAGNITUDE <= abs(value) < FILL_VALUE or value != int(value):
        return False
    return not str(abs(int(value))).strip("9") or (
        not str(abs(int(value)))[1:].strip("0") and str(abs(int(value)))[0] == "1"
    )


def _stands_out(magnitudes: np.ndarray, first_extreme: int) -> bool:
    """Return True if the smallest outlier is far beyond the tail of the usual values.

    On a log scale, the gap below the smallest outlier must be more than three times as wide as the gap between the 90 %
    quantile and the maximum of the usual values. With a smaller limit, large values of a heavy-tailed distribution
    would be treated as outliers. For example, in 1 of 2,000 samples of 300 log-normal values with a standard deviation
    of 8, the largest value is a million times the second largest.
    """
    usual = magnitudes[:first_extreme]
    usual = usual[usual > 0]
    if not len(usual):
        return True
    tail = usual[-1] / np.quantile(usual, 0.9)
    return bool(magnitudes[first_extreme] / usual[-1] > tail**3)


def may_have_outliers(mean: np.ndarray, deviation: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return a mask of channels that may have outliers, computed from statistics of all their values.

    All arguments and the mask have the same shape. The function is cheap, because it does not read the data again. Only
    channels in the returned mask need a second pass over the data, in which `usual_range` looks for outliers. By
    Chebyshev's inequality, at most about a fraction `MAX_SUSPICIOUS_SHARE` of the values is more than nine standard
    deviations from the mean.
    """
    magnitude = np.maximum(np.abs(lowest), np.abs(highest))
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.maximum(highest - mean, mean - lowest) > 9 * deviation
    fill = np.vectorize(_is_fill, otypes=[bool])
    return (highest > lowest) & (
        (magnitude >= FILL_VALUE) | ((magnitude >= SUSPICIOUS) & far) | fill(lowest) | fill(highest)
    )


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the standard deviation of (n,) values of any magnitude."""
    # Values are divided by the largest magnitude first, because the square of a value beyond 1e154 overflows float64.
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    return float((values / scale).mean() * scale), float((values / scale).std() * scale)


# The following classes collect statistics in one pass over the record batches: moments, and a sample for quantiles.

SAMPLE_ROWS = 100_000


class _Sums(NamedTuple):
    """Statistics of the values of one channel: count, sum, and sum of squared deviations.

    Each of the three statistics is a (groups,) array or a number.
    """

    size: np.ndarray | int
    total: np.ndarray | float
    squares: np.ndarray | float


class Moments:
    """Count, mean, standard deviation, minimum and maximum of each channel in each group.

    Missing values (NaN) are ignored. All arrays have the shape (groups, channels). Batches are merged by the update
    formula of Chan, Golub and LeVeque (1979) for count, mean and sum of squared deviations. A large offset of the
    values therefore costs no precision.
    """

    def __init__(self, groups: int, channels: int):
        self.count = np.zeros((groups, channels))
        self.mean = np.zeros((groups, channels))
        self.squares = np.zeros((groups, channels))  # sums of squared deviations from the mean
        self.lowest = np.full((groups, channels), np.inf)
        self.highest = np.full((groups, channels), -np.inf)

    @np.errstate(over="ignore", invalid="ignore")  # if squares overflow, the standard deviation is not finite
    def update(self, values: np.ndarray, groups: np.ndarray | None) -> None:
        """Add the values of S tokens to the statistics.

        `values`: (S, channels) values of the tokens. `groups`: (S,) group of each token, or None if there is only one
        group.
        """
        count, total, squares = (np.empty_like(self.count) for _ in range(3))
        for channel in range(values.shape[1]):
            column = values[:, channel]
            sums = self._ungrouped(column, channel) if groups is None else self._grouped(column, groups, channel)
            count[:, channel], total[:, channel], squares[:, channel] = sums
        self._merge(count, total, squares)

    def _ungrouped(self, values: np.ndarray, channel: int) -> _Sums:
        total = values.sum()
        if np.isnan(total):  # a sum is computed faster than a mask, and NaN is rare
            values = values[~np.isnan(values)]
            total = values.sum()
        deviations = values - values.mean() if len(values) else values
        group = np.zeros(1, np.int64)
        self._extend_range(channel, group, values.min(initial=np.inf), values.max(initial=-np.inf))
        return _Sums(len(values), total, deviations @ deviations)

    def _grouped(self, values: np.ndarray, groups: np.ndarray, channel: int) -> _Sums:
        if np.isnan(values.sum()):
            present = ~np.isnan(values)
            values, groups = values[present], groups[present]
        size = len(self.count)
        count = np.bincount(groups, minlength=size)
        total = np.bincount(groups, values, size)
        means = total / np.maximum(1, count)
        self._extend_range(channel, groups, values, values)
        return _Sums(count, total, np.bincount(groups, (values - means[groups]) ** 2, size))

    def _merge(self, count: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
        merged = self.count + count
        shift = np.where(count > 0, total / np.maximum(1, count) - self.mean, 0.0)
        share = count / np.maximum(1, merged)
        self.squares += squares + shift**2 * self.count * share
        self.mean += shift * share
        self.count = merged

    def _extend_range(
        self, channel: int, groups: np.ndarray, low: np.ndarray | float, high: np.ndarray | float
    ) -> None:
        np.minimum.at(self.lowest[:, channel], groups, low)
        np.maximum.at(self.highest[:, channel], groups, high)

    def deviation(self) -> np.ndarray:
        """Return the (groups, channels) standard deviations. A group without values has a standard deviation of 0."""
        return np.sqrt(self.squares / np.maximum(1, self.count))


class Sample:
    """A uniform random sample of at most `most` rows from a stream of batches.

    The same stream of batches always gives the same sample. Each row gets a random rank, and the rows with the lowest
    ranks are kept. Sorting costs little, because rows with high ranks are dropped only when the buffer is twice as
    large as the sample.
    """

    def __init__(self, most: int = SAMPLE_ROWS) -> None:
        self.most = most
        self.generator = np.random.default_rng(0)
        self.buffer: list[tuple[np.ndarray, np.ndarray]] = []  # pairs (rows, ranks of the rows)
        self.count = 0
        self.highest_rank = 1.0

    def update(self, rows: np.ndarray) -> None:
        """Add a batch of rows. The shape of `rows` is (S,) or (S, D)."""
        ranks = self.generator.random(len(rows))
        if self.highest_rank < 1.0:
            candidates = np.flatnonzero(ranks < self.highest_rank)
            rows, ranks = rows[candidates], ranks[candidates]
        self.buffer.append((rows, ranks))
        self.count += len(ranks)
        if self.count > 2 * self.most:
            self._drop_high_ranks()

    def _drop_high_ranks(self) -> None:
        rows, ranks = (np.concatenate(parts) for parts in zip(*self.buffer, strict=True))
        if len(ranks) > self.most:
            kept = np.sort(np.argpartition(ranks, self.most)[: self.most])
            rows, ranks = rows[kept], ranks[kept]
            self.highest_rank = float(ranks.max())
        self.buffer, self.count = [(rows, ranks)], len(ranks)

    @property
    def rows(self) -> np.ndarray | None:
        """Return the sampled rows in their original order, or None if there was no batch."""
        if not self.buffer:
            return None
        self._drop_high_ranks()
        return self.buffer[0][0]


MIN_GROUP_VALUES = 4  # minimum number of values of a group in which outliers can be distinguished from usual values
IQR_PER_DEVIATION = 1.349  # distance between the quartiles of a normal distribution with standard deviation 1

# A function of type `ReadValues` yields two arrays per record batch: the unscaled channels (S, channels) and the group
# (S,) of each token. The group is None if there is only one group. Every call of a `ReadValues` function starts at the
# first record batch.
ReadValues = Callable[[], Iterator[tuple[np.ndarray, np.ndarray | None]]]


@dataclass(frozen=True)
class Scales:
    """Mean and standard deviation of each channel. The scaled value of a number is (value - mean) / deviation.

    All arrays have the shape (groups, channels). `limits`: lowest and highest value of each channel, without outliers.
    The limits of a channel without outliers in training are infinite. `limits` is None if no channel had outliers.
    """

    mean: np.ndarray
    deviation: np.ndarray
    limits: tuple[np.ndarray, np.ndarray] | None = None


def stored_array(
    state: Mapping[str, Any],
    key: str,
    shapes: Sequence[tuple[int, ...]],
    null: float | None = None,
    *,
    positive: bool = False,
) -> np.ndarray:
    """Return the list under `key` in a stored state as a float64 array.

    `shapes`: allowed shapes of the array. `null`: number that replaces each null in the list. If `null` is None, nulls
    are rejected. `positive`: True if all numbers must be above 0. Raises InputError if the array has another shape, or
    if a number is not finite.
    """
    require(state, {key: list})
    try:
        array = np.array(state[key], np.float64)  # a null becomes NaN
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    nulls = np.isnan(array) & (null is not None)
    if array.shape not in shapes or not np.isfinite(array[~nulls]).all():
        raise InputError(key, f"must be {' lists of '.join(map(str, shapes[-1]))} numbers")
    if positive and (array <= 0).any():  # divisors and arguments of a logarithm must be positive
        raise InputError(key, "must be numbers above 0")
    return np.where(nulls, 0.0 if null is None else null, array)


@dataclass
class ChannelStatistics:
    """Statistics of the values of each channel. Missing values are ignored.

    The shape of all arrays is (groups, channels), or (channels,) for statistics over all groups. For robust scales,
    `mean` holds the median, and `deviation` holds a standard deviation that is estimated from the quartiles.
    """

    mean: np.ndarray
    deviation: np.ndarray
    count: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


def fit_scales(read: ReadValues, group_count: int, channels: int, *, grouped: bool, robust: bool) -> Scales:
    """Fit the scales of all channels in one pass over the data.

    If the data may have outliers, a second pass over the data follows. Only a sample of the values is kept in memory.
    `read`: function that yields the values and groups of tokens (see `ReadValues`). `group_count`: number of groups.
    The ids of the groups are 0 to `group_count` - 1. `grouped`: True if `read` yields the group of each token.
    `robust`: True to use median and quartiles instead of mean and standard deviation.
    """
    moments, sample = Moments(group_count, channels), Sample()
    for values, groups in read():
        moments.update(values, groups)
        if robust:
            sample.update(_with_groups(values, groups))
    statistics = _robust_statistics(sample, moments, grouped) if robust else _statistics(moments)
    suspects, suspect_channels = _suspects(moments)
    unlike_others = np.zeros(suspects.shape, bool)
    if suspects.any() or suspect_channels.any():
        if not robust:
            # Most data needs no sample, so the sample is drawn in a separate pass.
            for values, groups in read():
                sample.update(_with_groups(values, groups))
        measure = _median_and_spread if robust else mean_and_deviation
        _exclude_outliers(statistics, sample, suspects, grouped, measure)
        unlike_others = _unlike_other_groups(statistics, sample, suspect_channels)
    mean, deviation = _divisible(statistics, unlike_others)
    return Scales(mean, deviation, _limits(statistics, moments))


def _with_groups(values: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    return values if groups is None else np.column_stack([values, groups])


def _statistics(moments: Moments) -> ChannelStatistics:
    lowest, highest = moments.lowest.copy(), moments.highest.copy()
    return ChannelStatistics(moments.mean, moments.deviation(), moments.count, lowest, highest)


def _robust_statistics(sample: Sample, moments: Moments, grouped: bool) -> ChannelStatistics:
    median, spread, count = (np.zeros_like(moments.mean) for _ in range(3))
    for group, channel, values in _sampled_values(sample, grouped):
        median[group, channel], spread[group, channel] = _median_and_spread(values)
        count[group, channel] = len(values)
    return ChannelStatistics(median, spread, count, moments.lowest.copy(), moments.highest.copy())


def _median_and_spread(values: np.ndarray) -> tuple[float, float]:
    """Return the median, and a standard deviation that is estimated from the quartiles.

    If the quartiles are equal, return the actual standard deviation instead.
    """
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(median), float((high - low) / IQR_PER_DEVIATION or values.std())


def _sampled_values(sample: Sample, grouped: bool) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (group, channel, sampled values) for each group and channel that has values."""
    rows = sample.rows if sample.rows is not None else np.empty((0, 1 + grouped))
    values, groups = (rows[:, :-1], rows[:, -1].astype(np.int64)) if grouped else (rows, np.zeros(len(rows), np.int64))
    for group in np.unique(groups).tolist():
        group_values = values[groups == group]
        for channel in range(values.shape[1]):
            present = group_values[~np.isnan(group_values[:, channel]), channel]
            if len(present):
                yield group, channel, present


def _suspects(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks of channels that need a second pass over the data.

    The first mask, (groups, channels), is computed from each group. The second mask, (channels,), is computed from all
    groups together. A channel needs a second pass if it may have outliers, or if the squares of its values overflow or
    underflow float64.
    """
    statistics = _statistics(moments)
    lowest, highest, deviation = statistics.lowest, statistics.highest, statistics.deviation
    overflowed = (highest > lowest) & ~(np.isfinite(deviation) & (deviation > 0))
    suspects = overflowed | may_have_outliers(statistics.mean, deviation, lowest, highest)
    if len(suspects) == 1:
        return suspects, np.zeros(suspects.shape[1], bool)
    overall = _pooled(statistics, statistics.count)
    return suspects, may_have_outliers(overall.mean, overall.deviation, overall.lowest, overall.highest)


def _exclude_outliers(
    statistics: ChannelStatistics,
    sample: Sample,
    suspects: np.ndarray,
    grouped: bool,
    measure: Callable[[np.ndarray], tuple[float, float]],
) -> None:
    """Compute the mean and the standard deviation of channels with outliers again, without the outliers.

    The argument `statistics` is changed in place. The range of a channel with outliers becomes the range of its other
    values. If a channel without outliers has a standard deviation that is 0 or not finite, its mean and standard
    deviation are computed again from the sample.
    """
    for group, channel, values in _sampled_values(sample, grouped):
        at = group, channel
        if not suspects[at]:
            continue
        limits = usual_range(values, float(statistics.lowest[at]), float(statistics.highest[at]))
        if limits is not None:
            statistics.lowest[at], statistics.highest[at] = limits
            values = values[(limits[0] <= values) & (values <= limits[1])]
        elif np.isfinite(statistics.deviation[at]) and statistics.deviation[at] > 0:
            continue
        statistics.mean[at], statistics.deviation[at] = measure(values)


def _unlike_other_groups(statistics: ChannelStatistics, sample: Sample, suspect_channels: np.ndarray) -> np.ndarray:
    """Return a (groups, channels) mask of the groups that contain outliers among the values of all groups.

    Groups in the mask are left out of the mean and the standard deviation over all groups. If a group has few values or
    a single distinct value, its outliers cannot be distinguished from its usual values. A group in the mask with few
    values or one distinct value is treated like a group without values, and its values are clipped to the range of the
    other groups. The argument `statistics` is changed in place.
    """
    unlike = np.zeros(statistics.count.shape, bool)
    rows = sample.rows
    if rows is None:
        return unlike
    for channel in np.flatnonzero(suspect_channels).tolist():
        values = rows[~np.isnan(rows[:, channel]), channel]
        lowest, highest = statistics.lowest[:, channel], statistics.highest[:, channel]
        limits = usual_range(values, float(lowest.min()), float(highest.max()))
        if limits is None:
            continue
        count = statistics.count[:, channel]
        unlike[:, channel] = (count > 0) & ((lowest < limits[0]) | (highest > limits[1]))
        unclear = unlike[:, channel] & ((count < MIN_GROUP_VALUES) | (lowest == highest))
        lowest[unclear], highest[unclear] = limits
        count[unclear] = 0
    return unlike


@np.errstate(invalid="ignore", over="ignore")  # if squares overflow, the standard deviation is not finite
def _pooled(statistics: ChannelStatistics, weight: np.ndarray) -> ChannelStatistics:
    """Return (channels,) statistics over all groups.

    `weight`: (groups, channels) weight of each group, which is its number of values.
    """
    total = np.maximum(1, weight.sum(axis=0))
    mean = (np.where(weight > 0, statistics.mean, 0.0) * weight).sum(axis=0) / total
    # The variance over all groups is the mean of the variances within groups plus the variance of the means.
    within = np.where(weight > 0, statistics.deviation, 0.0)
    between = np.where(weight > 0, statistics.mean - mean, 0.0)
    deviation = np.sqrt(((within**2 + between**2) * weight).sum(axis=0) / total)
    lowest = np.where(weight > 0, statistics.lowest, np.inf).min(axis=0)
    highest = np.where(weight > 0, statistics.highest, -np.inf).max(axis=0)
    return ChannelStatistics(mean, deviation, total, lowest, highest)


def _divisible(statistics: ChannelStatistics, unlike_others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (groups, channels) means and standard deviations of the scales.

    All standard deviations are above 0, so that values can be divided by them. A group with fewer than two values gets
    the mean and the standard deviation over all groups. `unlike_others`: (groups, channels) mask of groups that are
    left out of the statistics over all groups. A channel with constant values gets a standard deviation of 1.
    """
    mean, deviation, count = statistics.mean, statistics.deviation, statistics.count
    lowest, highest = statistics.lowest, statistics.highest
    if len(mean) > 1:
        overall = _pooled(statistics, np.where(unlike_others, 0, count))
        few = count < 2
        mean, deviation = np.where(few, overall.mean, mean), np.where(few, overall.deviation, deviation)
        lowest, highest = np.where(few, overall.lowest, lowest), np.where(few, overall.highest, highest)
    # The computed standard deviation of constant values is a rounding error that is proportional to the constant. A
    # threshold that does not depend on the constant would treat channels in small units as constant.
    varies = (highest > lowest) & (deviation > ROUNDING * abs(mean))
    return np.where(highest == lowest, lowest, mean), np.where(varies, deviation, 1.0)


def _limits(statistics: ChannelStatistics, moments: Moments) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the limits of `Scales`. The limits of a channel with outliers are the range of all other values."""
    has_outliers = np.isfinite(statistics.lowest) & (statistics.lowest > moments.lowest)
    has_outliers |= np.isfinite(statistics.highest) & (statistics.highest < moments.highest)
    if not has_outliers.any():
        return None
    return np.where(has_outliers, statistics.lowest, -np.inf), np.where(has_outliers, statistics.highest, np.inf)
