"""Interface of a section of report.html: one class with a position on the page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from seqclf.documents.html import Section
from seqclf.report.report import Report


class ReportSection(ABC):
    """A section of report.html. A new one is a module in `run/sections`, or an entry point `seqclf.report_sections`.

    `position`: sections stand in ascending order, those of this package at 10 (the verdict), 20, … and 100.

    >>> class Rows(ReportSection):
    ...     position = 55
    ...
    ...     def build(self, report):
    ...         context = {"heading": "Rows", "text": f"{report.metrics.rows:,} rows.", "table": None}
    ...         return Section("run/table.html", context)
    """

    position: ClassVar[float]

    @abstractmethod
    def build(self, report: Report) -> Section | None:
        """Return the template of the section and its variables. None if the report has nothing for it."""
