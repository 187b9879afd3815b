"""Interface of the sections of report.html. Each section is one class with a position on the page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from seqclf.documents.blocks import Section
from seqclf.report.report import Report


class ReportSection(ABC):
    """A section of report.html.

    To add a section, write a module in `report/sections`, or declare an entry point `seqclf.report_sections` in another
    package. `position`: number that determines the order of the sections on the page. The built-in sections have
    positions from 10 (the verdict) to 100.

    >>> class Rows(ReportSection):
    ...     position = 55
    ...
    ...     def build(self, report):
    ...         return Section("Rows", [Text(f"{report.metrics.rows:,} rows.")])
    """

    position: ClassVar[float]

    @abstractmethod
    def build(self, report: Report) -> Section | None:
        """Return the heading and the blocks of the section, or `None` to leave the section out of this report."""
