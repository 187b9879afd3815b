"""The calibration section: predicted probabilities and observed frequencies, and the effect of temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.documents.blocks import Picture, Section, Table, Text
from seqclf.documents.formatting import number, percent, shortened
from seqclf.evaluation.calibration import calibration_error_by_chance
from seqclf.evaluation.intervals import interval_text
from seqclf.report.figures import reliability
from seqclf.report.reliability import ReliabilityBin, reliability_bins
from seqclf.report.report import Report
from seqclf.report.score_table import score_columns

BIAS = {1: "too high", -1: "too low", 0: "right"}


def calibration_section(report: Report) -> Section:
    """Compare the probability of the positive label, or of the most probable class, with its observed frequency."""
    index, probabilities = report.positive_index, report.evaluation.probabilities
    if index is None:
        happened, probability = report.labels == probabilities.argmax(axis=1), probabilities.max(axis=1)
    else:
        happened, probability = report.labels == index, probabilities[:, index]
    bins = reliability_bins(happened, probability)
    event = "right" if report.positive is None else shortened(report.positive, 20)
    biased = sum(part.bias != 0 for part in bins)
    off = "In no range are the probabilities off by more than chance."
    if biased:
        off = f"In {biased} of {len(bins)} ranges the probabilities are off by more than chance."
    description = "Reliability diagram: share of rows by predicted probability. The table below has its numbers."
    return Section(
        "Calibration",
        [
            Text(_explanation(report.positive), soft=True),
            Text(f"{_errors(report)} {off}"),
            Picture(reliability(bins), description),
            _table(bins, event, report.split),
        ],
    )


def _explanation(positive: str | None) -> str:
    event = "the most probable class is right" if positive is None else f"a sequence is {shortened(positive, 40)}"
    return (
        f"How often {event}, by its predicted probability. On the diagonal the probabilities can be trusted. The bars "
        "are confidence intervals that hold with 95% confidence all together: one that crosses the diagonal differs "
        "from it by no more than chance."
    )


def _errors(report: Report) -> str:
    calibration = report.result.calibration
    if calibration is None:
        by_chance = calibration_error_by_chance(report.evaluation.probabilities)
        return f"Calibration error {percent(report.metrics.ece)}{_by_chance(by_chance)}."
    errors = calibration.ece[report.split]
    applied = "is applied" if calibration.applied else "would be applied by decision.calibrate=true"
    return (
        f"Calibration error {percent(errors.before)}{_by_chance(errors.before_by_chance)}. With the temperature "
        f"{calibration.temperature:.2f}, fit on validation, which {applied}: {percent(errors.after)}"
        f"{_by_chance(errors.after_by_chance)}."
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
