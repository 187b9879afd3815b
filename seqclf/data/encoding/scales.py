"""Scales of number channels: mean and deviation, or median and quartiles, per group and without outliers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Outliers that flatten a channel: fill values such as 1e38, and broken readings.

FILL_VALUE = 1e20  # fill values (1e20, 9.97e36, 3.4e38) reach it; measurements in common units do not
SUSPICIOUS = 1e9  # a few values from here on may be broken readings
MAX_SUSPICIOUS_COUNT, MAX_SUSPICIOUS_SHARE = 3, 0.01
JUMP = 1e6  # ratio from the largest usual magnitude to the smallest extreme one; heavy tails leave no such gap
MIN_FILL_MAGNITUDE = 999.0  # of numbers such as -9999 and 1e15, which stand for "no reading" where they are repeated
MIN_FILL_RATIO = 10.0  # of their magnitude to that of all other values
PRECISION = float(np.finfo(np.float32).eps)  # of the model's input
ROUNDING = 8 * np.finfo(np.float64).eps


def usual_range(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float] | None:
    """Range of the values that are not extreme, or None if no value is extreme.

    Values are extreme only if they raise the deviation so much that the others would differ by less than the precision
    of float32 once scaled. That alone is not enough, as noise at rest under rare events looks the same. So extreme
    values must also lie beyond a jump in magnitude, and be at least `FILL_VALUE`, or be few, at least `SUSPICIOUS` and
    far beyond the tail of the others.

    A number of nines, or a power of ten, that is repeated and far beyond all others is extreme too (see `_is_fill`).

    `values`: (n,) a sample without NaN. `lowest`, `highest`: extremes of all values, sampled or not.

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
    """Return True for a number that programs write where there is none: 9999, -99999, 1e15.

    >>> [_is_fill(value) for value in (-9999.0, 1e15, 999999999.0, 9990.0, 99.0)]
    [True, True, True, False, False]
    """
    if not MIN_FILL_MAGNITUDE <= abs(value) < FILL_VALUE or value != int(value):
        return False
    return not str(abs(int(value))).strip("9") or (
        not str(abs(int(value)))[1:].strip("0") and str(abs(int(value)))[0] == "1"
    )


def _stands_out(magnitudes: np.ndarray, first_extreme: int) -> bool:
    """Return True if a jump covers three times the orders of magnitude of the upper tenth below it.

    Magnitudes of many decades have such tails: of log-normal ones with a deviation of 8, the largest of 300 is a
    million times the second one in one sample of 2,000.
    """
    usual = magnitudes[:first_extreme]
    usual = usual[usual > 0]
    if not len(usual):
        return True
    tail = usual[-1] / np.quantile(usual, 0.9)
    return bool(magnitudes[first_extreme] / usual[-1] > tail**3)


def may_have_outliers(mean: np.ndarray, deviation: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Mask of the channels for which `usual_range` may find a range, by statistics of all values.

    The arguments are arrays of one shape, and so is the mask. The test is cheap: a second pass over the data is needed
    only where it is true. By Chebyshev's inequality at most `MAX_SUSPICIOUS_SHARE` of the values lie nine or more
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
    """Mean and standard deviation of (n,) values of any magnitude."""
    # Squares of values beyond 1e154 overflow float64, so values are divided by the largest one first.
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    return float((values / scale).mean() * scale), float((values / scale).std() * scale)


# Statistics that scalers collect in one pass over record batches: moments, and a sample for quantiles.

SAMPLE_ROWS = 100_000


class _Sums(NamedTuple):
    """Size, sum and sum of squared deviations of the values of one channel: (groups,) each, or one number."""

    size: np.ndarray | int
    total: np.ndarray | float
    squares: np.ndarray | float


class Moments:
    """Count, mean, deviation and extremes of each channel within each group, without NaN.

    All arrays are (groups, channels). Batches are merged by the update of Chan, Golub and LeVeque (1979) on count, mean
    and sum of squared deviations, so a large offset costs no precision.
    """

    def __init__(self, groups: int, channels: int):
        self.count = np.zeros((groups, channels))
        self.mean = np.zeros((groups, channels))
        self.squares = np.zeros((groups, channels))  # sums of squared deviations from the mean
        self.lowest = np.full((groups, channels), np.inf)
        self.highest = np.full((groups, channels), -np.inf)

    @np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a deviation that is not finite
    def update(self, values: np.ndarray, groups: np.ndarray | None) -> None:
        """Add S tokens. `values`: (S, channels). `groups`: (S,) group of each token, or None for a single group."""
        count, total, squares = (np.empty_like(self.count) for _ in range(3))
        for channel in range(values.shape[1]):
            column = values[:, channel]
            sums = self._ungrouped(column, channel) if groups is None else self._grouped(column, groups, channel)
            count[:, channel], total[:, channel], squares[:, channel] = sums
        self._merge(count, total, squares)

    def _ungrouped(self, values: np.ndarray, channel: int) -> _Sums:
        total = values.sum()
        if np.isnan(total):  # cheaper than a mask in the common case of no NaN
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
        """Standard deviation, 0 for groups without values."""
        return np.sqrt(self.squares / np.maximum(1, self.count))


class Sample:
    """A uniform random sample of at most `most` of all rows, the same for the same rows in the same batches.

    Each row draws a random rank, and the rows of the lowest ranks are kept. Rows are dropped only when the buffer has
    grown to twice the sample, which makes the cost of sorting negligible.
    """

    def __init__(self, most: int = SAMPLE_ROWS) -> None:
        self.most = most
        self.generator = np.random.default_rng(0)
        self.buffer: list[tuple[np.ndarray, np.ndarray]] = []  # rows and their ranks
        self.count = 0
        self.highest_rank = 1.0

    def update(self, rows: np.ndarray) -> None:
        """Add rows, (S,) or (S, D)."""
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
        """The sampled rows in their order, or None if there was no batch."""
        if not self.buffer:
            return None
        self._drop_high_ranks()
        return self.buffer[0][0]


MIN_GROUP_VALUES = 4  # fewer do not show what the usual values of a group are
IQR_PER_DEVIATION = 1.349  # distance of the quartiles of a normal distribution, in deviations

# Unscaled channels of each record batch, (S, channels), and the group of each token, (S,) or None for a single group.
# Each call starts again at the first batch.
ReadValues = Callable[[], Iterator[tuple[np.ndarray, np.ndarray | None]]]


@dataclass(frozen=True)
class Scales:
    """Scaled value = (value - mean) / deviation. Arrays are (groups, channels).

    `limits`: lowest and highest usual value where training held outliers, infinite for channels without outliers. None
    if no channel had any.
    """

    mean: np.ndarray
    deviation: np.ndarray
    limits: tuple[np.ndarray, np.ndarray] | None = None


@dataclass
class ChannelStatistics:
    """Statistics of the values that are not missing: (groups, channels) each, or (channels,) over all groups.

    `mean` and `deviation` are the median and the scaled distance of the quartiles for robust scales.
    """

    mean: np.ndarray
    deviation: np.ndarray
    count: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


def fit_scales(read: ReadValues, group_count: int, channels: int, *, grouped: bool, robust: bool) -> Scales:
    """Fit the scales of all channels in one pass, or in two if outliers are suspected.

    Values are kept in memory as a sample only. `grouped`: `read` yields groups, numbered below `group_count`.
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
            # Sampled in a second pass, as most data needs neither.
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
    """Median and deviation by the quartiles, or the standard deviation where the quartiles are equal."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(median), float((high - low) / IQR_PER_DEVIATION or values.std())


def _sampled_values(sample: Sample, grouped: bool) -> Iterator[tuple[int, int, np.ndarray]]:
    """Group, channel and (n,) sampled values, for each channel of a group that has any."""
    rows = sample.rows if sample.rows is not None else np.empty((0, 1 + grouped))
    values, groups = (rows[:, :-1], rows[:, -1].astype(np.int64)) if grouped else (rows, np.zeros(len(rows), np.int64))
    for group in np.unique(groups).tolist():
        group_values = values[groups == group]
        for channel in range(values.shape[1]):
            present = group_values[~np.isnan(group_values[:, channel]), channel]
            if len(present):
                yield group, channel, present


def _suspects(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Masks of channels that need a second pass: (groups, channels), and (channels,) over all groups.

    They may hold outliers, or their squares left the range of float64.
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
    """Measure channels with outliers again on their usual values, and set their range to the usual one.

    Channels without outliers are measured again too if their deviation is unusable. Changes `statistics`.
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
    """(groups, channels) mask of groups that hold values which are outliers among those of all groups.

    Such groups must not count for the overall scale. Groups of few values, and constants, cannot show what their usual
    values are. They are treated like groups without values, and their outliers are moved to the range of the other
    groups: `statistics` is changed accordingly.
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


@np.errstate(invalid="ignore", over="ignore")  # an overflow shows as a deviation that is not finite
def _pooled(statistics: ChannelStatistics, weight: np.ndarray) -> ChannelStatistics:
    """(channels,) statistics over all groups, each with its `weight`: (groups, channels) numbers of values."""
    total = np.maximum(1, weight.sum(axis=0))
    mean = (np.where(weight > 0, statistics.mean, 0.0) * weight).sum(axis=0) / total
    # Variance of a mixture: the mean of the variances within groups, plus the variance of the means.
    within = np.where(weight > 0, statistics.deviation, 0.0)
    between = np.where(weight > 0, statistics.mean - mean, 0.0)
    deviation = np.sqrt(((within**2 + between**2) * weight).sum(axis=0) / total)
    lowest = np.where(weight > 0, statistics.lowest, np.inf).min(axis=0)
    highest = np.where(weight > 0, statistics.highest, -np.inf).max(axis=0)
    return ChannelStatistics(mean, deviation, total, lowest, highest)


def _divisible(statistics: ChannelStatistics, unlike_others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(groups, channels) means and deviations that are safe to divide by.

    A group without enough values is scaled like all values, except those of the groups in `unlike_others`, (groups,
    channels). The deviation of a constant is 1.
    """
    mean, deviation, count = statistics.mean, statistics.deviation, statistics.count
    lowest, highest = statistics.lowest, statistics.highest
    if len(mean) > 1:
        overall = _pooled(statistics, np.where(unlike_others, 0, count))
        few = count < 2
        mean, deviation = np.where(few, overall.mean, mean), np.where(few, overall.deviation, deviation)
        lowest, highest = np.where(few, overall.lowest, lowest), np.where(few, overall.highest, highest)
    # The deviation of a constant is rounding error, which grows with its magnitude. A fixed threshold would take
    # channels in small units for constants.
    varies = (highest > lowest) & (deviation > ROUNDING * abs(mean))
    return np.where(highest == lowest, lowest, mean), np.where(varies, deviation, 1.0)


def _limits(statistics: ChannelStatistics, moments: Moments) -> tuple[np.ndarray, np.ndarray] | None:
    """The limits of `Scales`: usual ranges of the channels that have values beyond them."""
    has_outliers = np.isfinite(statistics.lowest) & (statistics.lowest > moments.lowest)
    has_outliers |= np.isfinite(statistics.highest) & (statistics.highest < moments.highest)
    if not has_outliers.any():
        return None
    return np.where(has_outliers, statistics.lowest, -np.inf), np.where(has_outliers, statistics.highest, np.inf)
