"""The verdict section of a report: alarms, comparison with the order-blind baseline, and scores of the model."""

from __future__ import annotations

from seqclf.documents.blocks import Section
from seqclf.report.report import Report
from seqclf.report.score_table import verdict_blocks


def verdict_section(report: Report) -> Section:
    """Return the alarms, the comparison with the baseline and the score table."""
    return Section("Verdict", verdict_blocks(report.result))
