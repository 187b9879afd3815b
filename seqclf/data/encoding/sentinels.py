"""Find sentinels: numbers such as -999 that probably stand for a missing value.

A sentinel is a conventional number, is repeated in several rows, and lies alone beyond all other values. The search
only reports sentinels. The option `missing_values` of number fields removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.encoding.scales import FILL_VALUE, Sample, mean_and_deviation
from seqclf.system.state_validation import COUNT, Where, require

# Numbers that programs write for a missing value. Limits of converters, such as 255, 4095 and -32768, are absent on
# purpose, because saturated readings have these values.
NINES = (*(10.0**digits - 1 for digits in range(2, 10)), 99.9, 99.99, 999.9, 999.99, 9999.9)
REPEATED_DIGITS = (777.0, 888.0, 7777.0, 8888.0, 77777.0, 88888.0)  # codes of surveys for "refused" and "unknown"
POWERS_OF_TEN = tuple(10.0**power for power in range(9, 20))  # smaller powers of ten are common amounts
INTEGER_MINIMA = (-(2.0**31), -(2.0**63))  # what a NaN becomes in a cast to integers
MINUS_ONE = -1.0
CONVENTIONAL = np.array(
    [
        *(sign * value for value in (*NINES, *REPEATED_DIGITS, *POWERS_OF_TEN) for sign in (-1, 1)),
        *INTEGER_MINIMA,
        MINUS_ONE,
    ]
)
CONVENTIONAL = np.union1d(CONVENTIONAL, CONVENTIONAL.astype(np.float32))  # files of float32 hold -99.9 as a float32
MIN_ROWS = 5  # minimum number of rows that hold a sentinel
MIN_OTHERS, MIN_DISTINCT = 20, 3  # minimum number of other values, and of distinct other values
# Minimum ratio of the gap beside a sentinel to the distance from the median to the farthest other value on this side,
# and to the standard deviation of the other values.
# With smaller ratios, the top of a list of prices such as 99, 199 and 999 is found, and values clipped at 9999.
MIN_GAP_RATIO = 10.0
MIN_INTEGER_GAP = 5.0  # minimum gap above -1 in a channel of integers
MIN_WIDE = 30  # minimum number of distinct integers for which -1 may adjoin 0
MIN_PEAK_RATIO = 5.0  # in such a channel, minimum ratio of the count of -1 to the count of any other integer

# A function that yields the values (S, W), NaN if missing, and the lengths (N,) of each record batch.
ReadRows = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


class Sentinel(NamedTuple):
    """A number of one channel that probably stands for a missing value.

    `channel`: position of the channel. `value`: the number. `tokens`, `rows`: number of training tokens and of training
    rows that hold the number.
    """

    channel: int
    value: float
    tokens: int
    rows: int


def find_sentinels(read: ReadRows, width: int) -> list[Sentinel]:
    """Return the sentinels of all channels, by channel and value.

    The first pass over the data finds the smallest and the largest value of each channel. A second pass follows only if
    one of them is a conventional number. `width`: number of channels.
    """
    lowest, highest = np.full(width, np.inf), np.full(width, -np.inf)
    for values, _ in read():
        if len(values):
            np.fmin(lowest, np.fmin.reduce(values), out=lowest)
            np.fmax(highest, np.fmax.reduce(values), out=highest)
    suspects = np.flatnonzero((lowest < highest) & (is_conventional(lowest) | is_conventional(highest))).tolist()
    if not suspects:
        return []
    # Of the numbers from `FILL_VALUE`, only the extremes are counted, because data may have many distinct ones.
    ends = np.stack([lowest, highest])
    ends[~is_conventional(ends)] = MINUS_ONE
    counters = {channel: _Counter(np.union1d(CONVENTIONAL, ends[:, channel])) for channel in suspects}
    for values, lengths in read():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        for channel, counter in counters.items():
            counter.update(values[:, channel], rows)
    return [
        Sentinel(channel, value, *counter.counts[value])
        for channel, counter in counters.items()
        for value in counter.sentinels()
    ]


def is_conventional(values: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers that programs write for a missing value.

    >>> is_conventional(np.array([-999.0, 998.0, 1e30, np.float32(-99.9), -1.0, 4095.0])).tolist()
    [True, False, True, True, True, False]
    """
    return np.isin(values, CONVENTIONAL) | (np.isfinite(values) & (np.abs(values) >= FILL_VALUE))


class _Counter:
    """Counts of the conventional numbers of one channel, and a summary of all other values of the channel."""

    def __init__(self, candidates: np.ndarray) -> None:
        self.candidates = candidates
        self.counts: dict[float, tuple[int, int]] = {}  # conventional number → number of values, number of rows
        self.lowest, self.highest = np.inf, -np.inf  # of all other values
        self.sample, self.total = Sample(), 0  # of all other values

    def update(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Add the values of a record batch. `values`: (S,). `rows`: (S,) row of each value."""
        chosen = np.isin(values, self.candidates)
        for value in np.unique(values[chosen]).tolist():
            equal = values == value
            count, row_count = self.counts.get(value, (0, 0))
            self.counts[value] = count + int(equal.sum()), row_count + len(np.unique(rows[equal]))
        others = values[~chosen & ~np.isnan(values)]
        self.lowest = min(self.lowest, float(others.min(initial=np.inf)))
        self.highest = max(self.highest, float(others.max(initial=-np.inf)))
        self.sample.update(others)
        self.total += len(others)

    def sentinels(self) -> list[float]:
        """Return the conventional numbers that lie alone beyond all other values, in ascending order."""
        others = self.sample.rows
        if others is None or len(others) < MIN_OTHERS:
            return []
        distinct, counts = np.unique(others, return_counts=True)
        if len(distinct) < MIN_DISTINCT:
            return []
        frequent = [value for value, (_, rows) in sorted(self.counts.items()) if rows >= MIN_ROWS]
        rare = [value for value in self.counts if value not in frequent]  # a rare conventional number is a usual value
        lowest, highest = min([self.lowest, *rare]), max([self.highest, *rare])
        median, deviation = float(np.median(others)), mean_and_deviation(others)[1]
        most = counts.max() * self.total / len(others)  # count of the most frequent other value
        found = []
        for value in frequent:
            if value == MINUS_ONE:
                is_sentinel = lowest >= 0 and _is_apart_from_minus_one(distinct, self.counts[value][0] / most)
            elif value < lowest:
                # Values that are never negative have no negative tail, so the gap needs no minimum width.
                is_sentinel = lowest >= 0 or lowest - value >= MIN_GAP_RATIO * max(median - lowest, deviation)
            else:
                is_sentinel = value - highest >= MIN_GAP_RATIO * max(highest - median, deviation)
            if is_sentinel:
                found.append(value)
        return found


def _is_apart_from_minus_one(distinct: np.ndarray, peak: float) -> bool:
    """Return True if -1 is probably not the lowest value of its channel, whose other values are 0 or more.

    `distinct`: distinct other values in ascending order. `peak`: count of -1 over the count of the most frequent other
    value. Among numbers with fractions, a repeated -1 stands out. Among integers, -1 must be followed by a gap, or be
    much more frequent than every other integer.
    """
    if (distinct != np.round(distinct)).mean() > 0.5:
        return True
    if distinct[0] - MINUS_ONE >= MIN_INTEGER_GAP:
        return True
    return len(distinct) >= MIN_WIDE and peak >= MIN_PEAK_RATIO


def stored_sentinels(state: list[dict[str, Any]], width: int) -> list[Sentinel]:
    """Return the sentinels of a stored state, a list of mappings. Raises InputError if an entry is not valid."""
    channel = Where(int, lambda position: 0 <= position < width, f"a whole number below {width}")
    require(state, [{"channel": channel, "value": float, "tokens": COUNT, "rows": COUNT}], "sentinels")
    return [Sentinel(entry["channel"], float(entry["value"]), entry["tokens"], entry["rows"]) for entry in state]
