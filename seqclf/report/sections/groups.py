"""Groups of a report: the worst patients, cards or speakers."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.formatting import number, shortened
from seqclf.documents.html import Section, Table
from seqclf.report.report import Report
from seqclf.report.score_table import group_rows, group_sentence, score_columns
from seqclf.report.section import ReportSection


class GroupsSection(ReportSection):
    """The groups whose scores are lowest."""

    position: ClassVar[float] = 55

    def build(self, report: Report) -> Section | None:
        """Return the groups of the lowest scores, None where rows have no named groups."""
        groups = report.metrics.groups
        if groups is None or not groups.worst:
            return None
        headings, rows = group_rows(groups, None if report.positive is None else shortened(report.positive, 20))
        caption = f"The {number(len(rows))} groups of the lowest scores beyond chance, of {number(groups.count)}"
        table = Table({headings[0]: "text", **score_columns(headings[1:])}, rows, caption=caption)
        return Section("run/groups.html", {"sentence": group_sentence(groups), "table": table})
