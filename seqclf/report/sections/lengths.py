"""The section of lengths in a report: scores by number of tokens."""

from __future__ import annotations

from seqclf.documents.blocks import Section, Table
from seqclf.documents.formatting import number, score, shortened
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.slices import SliceMetrics
from seqclf.report.report import Report


def lengths_section(report: Report) -> Section:
    """Return a table with one row for each range of lengths, and one row for truncated sequences."""
    return Section("By length", [length_table(report.result)])


def length_table(result: RunResult) -> Table:
    """Return a table of the scores on the last split, with one row for each range of sequence lengths."""
    metrics, positive = result.metrics, result.positive
    slices: list[tuple[str, SliceMetrics]] = [
        (f"{part.low:,}" if part.low == part.high else f"{part.low:,} to {part.high:,}", part)
        for part in metrics.by_length
    ]
    if metrics.truncated is not None:
        slices.append(("truncated", metrics.truncated))
    label = None if positive is None else shortened(positive, 20)
    names, counts = ["recall", "accuracy", "f1"], ["rows"]
    if positive is not None:
        names, counts = ["recall", "precision", "average_precision"], ["rows", f"rows of {label}"]
    rows = [[title, *_cells(part, names)] for title, part in slices]
    headings = [metric_title(name, label) for name in names] + counts
    columns = {"tokens": "text", " ": "bar", **dict.fromkeys(headings, "number")}
    return Table(columns, rows, caption=f"Scores on {result.split} by number of tokens, before truncation")


def _cells(part: SliceMetrics, names: list[str]) -> list[object]:
    block = part if part.positive is None else part.positive
    sizes = [part.rows] if part.positive is None else [part.rows, part.positive.rows]
    scores = [score(getattr(block, name)) for name in names]
    return [block.recall or 0.0, *scores, *map(number, sizes)]
