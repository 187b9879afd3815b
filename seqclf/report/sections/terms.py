"""The section of n-grams in a report: what the simple model of n-grams goes by."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.blocks import Section, Table, Text
from seqclf.documents.formatting import shortened
from seqclf.report.report import Report
from seqclf.report.section import ReportSection

MAX_CHARACTERS = 100  # characters shown of an n-gram


class TermsSection(ReportSection):
    """Table of the n-grams that speak for each class."""

    position: ClassVar[float] = 52

    def build(self, report: Report) -> Section | None:
        """Return a table with one row for each class, or `None` if the model has no wide path of n-grams."""
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
            "The n-grams that speak most for each class, in the rows that the simple model takes for it. "
            "The number is what the n-gram adds to the logit of the class in such a row on average, more than to those "
            "of the other classes. It is exact: all n-grams together are the part that this model has in the logits. "
            "An n-gram that should tell nothing about the class, such as a name of its source, may be a leak."
        )
        columns = {"class": "text", "n-grams": "text"}
        title = f"All {len(rows):,} classes"
        caption = f"N-grams that speak for each class on {report.split}, the strongest first"
        table = Table(columns, rows, stacked=True, folded=title, caption=caption)
        return Section("What the n-grams say", [Text(text, soft=True), table])
