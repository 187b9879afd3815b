"""Alarms about a model that is not shown to beat the order-blind baseline, with the rows that would show it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seqclf.evaluation.alarms import LEARN_MORE, NOT_BETTER, WEAK_THRESHOLD, Alarm
from seqclf.evaluation.comparison import EQUAL_ALERTS, Comparison
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.intervals import SIGNED, interval_text

POWER = 0.8  # probability that the stated number of rows shows an existing difference
# The half-width of a 95 % interval is 1.96 standard deviations. A difference of 1.96 + 0.84 standard deviations is
# shown with the probability `POWER`.
HALF_WIDTHS = (1.96 + 0.8416) / 1.96
MAX_TIMES_THE_ROWS = 20  # a larger multiple of the present number of rows is not stated
OTHER_TARGET = "another target (the table of targets in report.html shows the alerts of each)"


def baseline_alarms(comparisons: Sequence[Comparison], decision: Decision, count: int, unit: str) -> list[Alarm]:
    """Return an alarm for each judged comparison in which the model is worse, or not shown to be better.

    The first comparison is judged. With a threshold, recall at equal alerts is judged first, because a better ranking
    does not help if the alerts are worthless. Two nearly perfect models give no alarm. `count`, `unit`: number and name
    of the independent units of the compared sample, such as 200 "rows".
    """
    at_threshold = [entry for entry in comparisons if decision.rule != "argmax" and entry.metric == EQUAL_ALERTS]
    judged = [*at_threshold, *comparisons[:1]]
    few = next((f"more {entry.counted} to set the threshold" for entry in decision.targets if entry.lacks_rows), None)
    return [
        _alarm(entry, count, unit, few or OTHER_TARGET)
        for entry in judged
        if not entry.is_better and not entry.is_too_easy
    ]


def _alarm(compared: Comparison, count: int, unit: str, at_threshold: str) -> Alarm:
    """`at_threshold`: remedy if the comparison judges a threshold."""
    verdict = "worse than" if compared.is_worse else "not shown to be better than"
    limits = interval_text((compared.low, compared.high), SIGNED)
    text = (
        f"{verdict} a model that ignores the order: {compared.title} {compared.model:.3f} against "
        f"{compared.baseline:.3f}, a difference of {SIGNED(compared.difference)} ({limits})"
    )
    if (needed := rows_to_tell(compared, count)) is not None:
        text += (
            f"; about {needed:,} {unit} instead of {count:,} would show a difference of this size with a probability "
            f"of {POWER:.0%}"
        )
    few = f"more {unit} to judge it by: {count:,} would not show that a perfect model is better"
    if compared.metric == EQUAL_ALERTS:
        return Alarm(WEAK_THRESHOLD, text, at_threshold if compared.can_be_shown or compared.is_worse else few)
    if compared.is_worse:
        return Alarm(NOT_BETTER, text, f"the simpler model, or {LEARN_MORE}, compared by validation scores")
    if not compared.can_be_shown:
        return Alarm(NOT_BETTER, text, few)
    return Alarm(NOT_BETTER, text, f"{LEARN_MORE}, compared by validation scores")


def rows_to_tell(comparison: Comparison, rows: int) -> int | None:
    """Return how many rows would show the difference of `rows` rows with the probability `POWER`, or None.

    None if the difference is not positive, or if they would be too many.
    """
    if comparison.is_better or comparison.difference <= 0:
        return None
    # The width of an interval is inversely proportional to the square root of the rows.
    times = (HALF_WIDTHS * (comparison.difference - comparison.low) / comparison.difference) ** 2
    return rounded_up(times * rows) if times <= MAX_TIMES_THE_ROWS else None


def rounded_up(rows: float) -> int:
    """Round up to two significant digits, because more digits would suggest a false precision.

    >>> rounded_up(1234)
    1300
    """
    unit = 10 ** max(0, math.floor(math.log10(max(rows, 1))) - 1)
    return math.ceil(rows / unit) * unit
