"""The section of groups in a report: the groups with the lowest scores, such as patients, cards or speakers."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.blocks import Section
from seqclf.report.report import Report
from seqclf.report.score_table import group_blocks
from seqclf.report.section import ReportSection


class GroupsSection(ReportSection):
    """Table of the groups with the lowest scores."""

    position: ClassVar[float] = 55

    def build(self, report: Report) -> Section | None:
        """Return the groups with the lowest scores, or `None` if the rows have no named groups."""
        blocks = group_blocks(report.result)
        return Section("Groups", blocks) if len(blocks) > 1 else None
