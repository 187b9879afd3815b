"""Scales of number channels: mean and deviation, or median and quartiles, per group and without outliers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from seqclf.data.encoding.outliers import ROUNDING, may_have_outliers, mean_and_deviation, usual_range
from seqclf.data.encoding.running_moments import Moments, Sample

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
