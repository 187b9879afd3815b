"""report.html: the verdict on a run or an evaluation, for readers who decide whether to use the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqclf.reporting.formatting import shortened
from seqclf.reporting.html import Section, render_sections
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.sections.calibration import calibration_section
from seqclf.reporting.run.sections.classes import classes_section
from seqclf.reporting.run.sections.confusion import confusion_section
from seqclf.reporting.run.sections.data import data_section
from seqclf.reporting.run.sections.epochs import epochs_section
from seqclf.reporting.run.sections.lengths import lengths_section
from seqclf.reporting.run.sections.mistakes import mistakes_section
from seqclf.reporting.run.sections.provenance import provenance_section
from seqclf.reporting.run.sections.threshold import threshold_section
from seqclf.reporting.run.sections.verdict import verdict_section
from seqclf.reporting.run.summary import headline
from seqclf.system.atomic_files import write_output

# In the order of the page. A section is None where the report has nothing for it.
SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    verdict_section,
    threshold_section,
    epochs_section,
    confusion_section,
    classes_section,
    lengths_section,
    calibration_section,
    mistakes_section,
    data_section,
    provenance_section,
)


def write_report(report: Report, path: Path) -> None:
    """Write a page that needs no other file and no network."""
    sections = [section for make in SECTIONS if (section := make(report)) is not None]
    title, summary = shortened(report.title), headline(report.metrics, report.split)
    write_output(path, render_sections("run.html", sections, title=title, summary=summary))
