"""Reliability: predicted probabilities against observed frequencies, in bins, and the effect of temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from seqclf.documents.blocks import Picture, Section, Table, Text
from seqclf.documents.formatting import number, percent, shortened
from seqclf.documents.svg import FILL, SOFT, render_svg
from seqclf.evaluation.calibration import calibration_error_by_chance
from seqclf.evaluation.intervals import CONFIDENCE, interval_text, proportion_interval
from seqclf.report.charts import CURVE_IN, MARGIN, style_axes
from seqclf.report.reported import Reported
from seqclf.report.score_tables import score_columns

# Bin edges are round numbers. They are dense near 0 and 1, because a rare class or a good model has most probabilities
# there.
EDGES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99, 0.997, 0.999, 1)
BIAS = {1: "too high", -1: "too low", 0: "right"}
MIN_ROWS = 20  # minimum rows of a bin, unless there are fewer rows in total


class ReliabilityBin(NamedTuple):
    """One bin of a reliability diagram: the rows with a predicted probability from `low` up to `high`.

    `rows`: number of rows in the bin. `expected`: expected number of events, which is the sum of the predicted
    probabilities. `observed`: number of rows in which the event happened. `share_low`, `share_high`: ends of the
    Clopper-Pearson confidence interval for the fraction of rows with the event. With a confidence of 95 %, all
    intervals contain the true fractions of their bins.
    """

    low: float
    high: float
    rows: int
    expected: float
    observed: int
    share_low: float
    share_high: float

    @property
    def mean(self) -> float:
        """Mean predicted probability of the rows in the bin."""
        return self.expected / self.rows

    @property
    def share(self) -> float:
        """Fraction of the rows in the bin in which the event happened."""
        return self.observed / self.rows

    @property
    def bias(self) -> int:
        """1 if the bin's probabilities are too high, -1 if they are too low, 0 if chance explains the difference."""
        return int(self.mean > self.share_high) - int(self.mean < self.share_low)


def reliability_bins(happened: np.ndarray, probability: np.ndarray) -> list[ReliabilityBin]:
    """Compare predicted probabilities with observed events in bins of at least `MIN_ROWS` rows.

    `happened`: (N,) bool, True for rows in which the event happened. `probability`: (N,) predicted probability of the
    event. Small bins are merged by their row counts alone, and not by their events. If the probabilities are right, the
    events in a merged bin are therefore independent. With a confidence of at least 95 % for all bins together
    (Bonferroni), the intervals contain the mean probabilities of their bins if the probabilities are right. Different
    probabilities within a bin only reduce the variance of the observed fraction (Hoeffding 1956).

    >>> bins = reliability_bins(np.repeat([False, True], [95, 5]), np.repeat([0.02, 0.4], [80, 20]))
    >>> [(part.low, part.high, part.rows, round(part.expected, 1), part.observed, part.bias) for part in bins]
    [(0, 0.03, 80, 1.6, 0, 0), (0.03, 1, 20, 8.0, 5, 0)]
    """
    counts = np.histogram(probability, EDGES)[0]
    parts, bins = _joined(counts.tolist()), []
    for start, stop in parts:
        low, high = EDGES[start], EDGES[stop]
        inside = (probability >= low) & ((probability < high) if stop < len(counts) else True)
        rows, observed = int(inside.sum()), int(happened[inside].sum())
        limits = proportion_interval(observed, rows, 1 - (1 - CONFIDENCE) / len(parts))
        if limits is not None:
            bins.append(ReliabilityBin(low, high, rows, float(probability[inside].sum()), observed, *limits))
    return bins


def _joined(counts: list[int]) -> list[tuple[int, int]]:
    """Merge neighbouring bins until each bin has at least `MIN_ROWS` rows.

    Return the merged bins as index ranges [start, stop).
    """
    parts = [(index, index + 1, count) for index, count in enumerate(counts)]
    while len(parts) > 1:
        index = min(range(len(parts)), key=lambda position: parts[position][2])
        if parts[index][2] >= MIN_ROWS:
            break
        # Merge the bin with its smaller neighbour, so that bins stay narrow where there are many rows.
        neighbours = [position for position in (index - 1, index + 1) if 0 <= position < len(parts)]
        other = min(neighbours, key=lambda position: parts[position][2])
        first, last = sorted((index, other))
        parts[first : last + 1] = [(parts[first][0], parts[last][1], parts[first][2] + parts[last][2])]
    return [(start, stop) for start, stop, _ in parts]


def reliability_diagram(bins: Sequence[ReliabilityBin]) -> Markup:
    """Draw the mean predicted probability (x) and the observed fraction (y) of each bin, with its interval."""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
        for part in bins:
            axis.plot([part.mean, part.mean], [part.share_low, part.share_high], color=FILL, linewidth=1)
            axis.plot(part.mean, part.share, color=FILL, marker="o", markersize=5, clip_on=False, zorder=3)
        style_axes(axis, "predicted probability", "observed share of rows")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        figure.subplots_adjust(**MARGIN)

    return render_svg(draw, CURVE_IN, 0.72 * CURVE_IN)


def calibration_section(reported: Reported) -> Section:
    """Compare the probability of the positive label, or of the most probable class, with its observed frequency."""
    positive, probabilities = reported.result.positive, reported.probabilities
    if positive is None:
        happened, probability = reported.rows.labels == probabilities.argmax(axis=1), probabilities.max(axis=1)
    else:
        index = reported.result.classes.index(positive)
        happened, probability = reported.rows.labels == index, probabilities[:, index]
    bins = reliability_bins(happened, probability)
    event = "right" if positive is None else shortened(positive, 20)
    biased = sum(part.bias != 0 for part in bins)
    off = "In no range are the probabilities off by more than chance."
    if biased:
        off = f"In {biased} of {len(bins)} ranges the probabilities are off by more than chance."
    description = "Reliability diagram: share of rows by predicted probability. The table below has its numbers."
    return Section(
        "Calibration",
        [
            Text(_explanation(positive), soft=True),
            Text(f"{_errors(reported)} {off}"),
            Picture(reliability_diagram(bins), description),
            _table(bins, event, reported.split),
        ],
    )


def _explanation(positive: str | None) -> str:
    event = "the most probable class is right" if positive is None else f"a sequence is {shortened(positive, 40)}"
    return (
        f"How often {event}, by its predicted probability. On the diagonal the probabilities can be trusted. The bars "
        "are confidence intervals that hold with 95% confidence all together: one that crosses the diagonal differs "
        "from it by no more than chance."
    )


def _errors(reported: Reported) -> str:
    calibration = reported.result.calibration
    if calibration is None:
        by_chance = calibration_error_by_chance(reported.probabilities)
        return f"Calibration error {percent(reported.metrics.ece)}{_by_chance(by_chance)}."
    errors = calibration.ece[reported.split]
    applied = "is applied" if calibration.applied else "would be applied by decision.calibrate=true"
    return (
        f"Calibration error {percent(errors['before'])}{_by_chance(errors['before_by_chance'])}. With the temperature "
        f"{calibration.temperature:.2f}, fit on validation, which {applied}: {percent(errors['after'])}"
        f"{_by_chance(errors['after_by_chance'])}."
    )


def _by_chance(error: float) -> str:
    return f" (right probabilities would show {percent(error)} on as many rows)"


def _table(bins: Sequence[ReliabilityBin], event: str, split: str) -> Table:
    rows = [
        [
            _range(part.low, part.high),
            BIAS[part.bias],
            percent(part.share),
            _range(part.share_low, part.share_high),
            number(part.rows),
            number(round(part.expected, 1)),
            number(part.observed),
        ]
        for part in bins
    ]
    # The most important columns come first, because a phone cuts off the last columns.
    columns = score_columns(["observed share", "between", "rows", f"expected {event}", f"observed {event}"])
    caption = f"Rows of {split} by predicted probability"
    return Table({"probability": "text", "it is": "text", **columns}, rows, caption=caption)


def _range(low: float, high: float) -> str:
    return interval_text((low, high), percent, to=" to\N{NO-BREAK SPACE}")
