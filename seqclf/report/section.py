"""Interface of the sections of report.html. Each section is one class."""

from __future__ import annotations

from abc import ABC, abstractmethod

from seqclf.documents.blocks import Section
from seqclf.report.report import Report


class ReportSection(ABC):
    """A section of report.html. `page.SECTIONS` lists the sections in the order of the page.

    >>> class Rows(ReportSection):
    ...     def build(self, report):
    ...         return Section("Rows", [Text(f"{report.metrics.rows:,} rows.")])
    """

    @abstractmethod
    def build(self, report: Report) -> Section | None:
        """Return the heading and the blocks of the section, or `None` to leave the section out of this report."""
