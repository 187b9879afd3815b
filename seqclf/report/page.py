"""The page report.html: results of a training run or an evaluation, for readers who decide whether to use a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seqclf.documents.blocks import Document, Section
from seqclf.documents.formatting import number, percent, shortened
from seqclf.documents.html import render_document
from seqclf.evaluation.results import SplitOutputs
from seqclf.report.ladder import compared_section
from seqclf.report.report import Report
from seqclf.report.score_table import verdict_blocks
from seqclf.report.sections.breakdowns import classes_section, lengths_section, periods_section
from seqclf.report.sections.calibration import calibration_section
from seqclf.report.sections.confusion import confusion_section
from seqclf.report.sections.mistakes import mistakes_section
from seqclf.report.sections.threshold import threshold_section
from seqclf.report.sections.training import epochs_section, provenance_section
from seqclf.system.atomic_files import write_output

SECTIONS: tuple[Callable[[Report], Section | None], ...] = (  # in the order of the page, after the verdict
    threshold_section,
    epochs_section,
    confusion_section,
    classes_section,
    lengths_section,
    periods_section,
    calibration_section,
    mistakes_section,
    provenance_section,
)

# The facts below the headline of a report: data, row counts, classes, date and version.


def report_facts(report: Report) -> dict[str, list[str]]:
    """Return the known facts of a report, such as its data and its date, as dict name → lines of text."""
    held_out = f" + {number(report.result.holdout_rows)} for the threshold" if report.result.holdout_rows else ""
    rows = (
        f"{split} {number(len(outputs.labels))}{held_out if split == 'validation' else ''}"
        for split, outputs in report.evaluation.outputs.items()
    )
    facts = {
        "Data": _data(report),
        "Rows": [", ".join(rows)],
        "Classes": [number(len(report.classes))],
        "Outputs": _outputs(report.evaluation.last),
        "Bundle": [report.bundle],
        "Written": [None if report.created is None else report.created.strftime("%Y-%m-%d %H:%M %Z").strip()],
        "seqclf": [report.versions.get("seqclf")],
    }
    known = {name: [line for line in lines if line] for name, lines in facts.items()}
    return {name: lines for name, lines in known.items() if lines}


def _outputs(rows: SplitOutputs) -> list[str | None]:
    """Return a line about each number that the network returns beside its logits: its mean, or the share of tokens."""
    lines: list[str | None] = []
    for name, values in rows.extra.items():
        if name == "tokens_read" and rows.lengths.any():
            lines.append(f"{name}: {percent(values.sum() / rows.lengths.sum())} of the tokens")
        elif values.ndim == 1:
            lines.append(f"{name}: {values.mean():.4g} on average")
    return lines


def _data(report: Report) -> Sequence[str | None]:
    """Return one line for each split with the source of its rows, or one for all."""
    sources = report.sources
    if len(set(sources.values())) == 1:
        return list(sources.values())[:1]
    return [f"{split}: {source}" for split, source in sources.items()]


def write_report(report: Report, path: Path) -> None:
    """Write report.html, a page that works without other files and without a network."""
    write_output(path, render_document(report_document(report)))


def report_document(report: Report) -> Document:
    """Return a report as a document: the verdict on the model, followed by all sections."""
    verdict_section = Section("Verdict", verdict_blocks(report.result))
    compared = compared_section(report.against) if report.against else None
    sections = (verdict_section, compared, *(section(report) for section in SECTIONS))
    verdict = report.verdict
    return Document(
        shortened(report.title),
        verdict.result,
        [section for section in sections if section is not None],
        lead=verdict.use,
        answers=verdict.answers,
        facts=report_facts(report),
        alerts=report.warnings,
    )
