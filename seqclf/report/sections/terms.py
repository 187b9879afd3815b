"""The section of a report that tells what the simple model goes by: n-grams, statistics of numbers, and counts."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.blocks import Section, Table, Text
from seqclf.documents.formatting import shortened
from seqclf.report.report import Report
from seqclf.report.section import ReportSection

MAX_CHARACTERS = 100  # characters shown of a feature


class TermsSection(ReportSection):
    """Table of the features that speak for each class."""

    position: ClassVar[float] = 52

    def build(self, report: Report) -> Section | None:
        """Return a table with one row for each class, or `None` if no wide path has such features."""
        terms = report.result.terms
        if not terms:
            return None
        rows = [
            [
                shortened(label, 40),
                ", ".join(f"{shortened(term.text, MAX_CHARACTERS)} {term.contribution:+.2f}" for term in of_class),
            ]
            for label, of_class in terms.items()
        ]
        text = (
            "The n-grams of tokens, statistics of numbers and counts that speak most for each class, in the rows that "
            "the simple model takes for it. The number is what a feature adds to the logit of the class in such a row "
            "on average, more than to those of the other classes. It is exact: together they are the part that the "
            "simple model has in the logits, but for random kernels. Statistics and counts are high or low beside "
            "other rows. A feature that should tell nothing about the class, such as a name of its source, may be a "
            "leak."
        )
        columns = {"class": "text", "features": "text"}
        title = f"All {len(rows):,} classes"
        caption = f"Features that speak for each class on {report.split}, the strongest first"
        table = Table(columns, rows, stacked=True, folded=title, caption=caption)
        return Section("What the simple model goes by", [Text(text, soft=True), table])
