"""The page report.html: results of a training run or an evaluation, for readers who decide whether to use a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

from seqclf.documents.blocks import Document, Section
from seqclf.documents.formatting import number, shortened
from seqclf.documents.html import check_section, render_document
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.report import sections
from seqclf.report.report import Report
from seqclf.report.section import ReportSection
from seqclf.system.atomic_files import write_output
from seqclf.system.plugins import REPORT_SECTIONS, defined_class, installed_plugins, load_plugin, module_names

# The facts below the headline of a report: data, row counts, classes, date and version.


def report_facts(report: Report) -> dict[str, list[str]]:
    """Return the facts of a report, such as its data and its date, as dict name → lines of text.

    Unknown facts are omitted.
    """
    held_out = f" + {number(report.result.holdout_rows)} for the threshold" if report.result.holdout_rows else ""
    rows = (
        f"{split} {number(len(outputs.labels))}{held_out if split == 'validation' else ''}"
        for split, outputs in report.evaluation.outputs.items()
    )
    facts = {
        "Data": _data(report),
        "Rows": [", ".join(rows)],
        "Classes": [number(len(report.classes))],
        "Bundle": [report.bundle],
        "Written": [None if report.created is None else report.created.strftime("%Y-%m-%d %H:%M %Z").strip()],
        "seqclf": [report.versions.get("seqclf")],
    }
    known = {name: [line for line in lines if line] for name, lines in facts.items()}
    return {name: lines for name, lines in known.items() if lines}


def _data(report: Report) -> Sequence[str | None]:
    """Return one line for each split with the source of its rows.

    If all splits have the same source, return a single line.
    """
    sources = report.sources
    if len(set(sources.values())) == 1:
        return list(sources.values())[:1]
    return [f"{split}: {source}" for split, source in sources.items()]


def write_report(report: Report, path: Path) -> None:
    """Write report.html, a page that works without other files and without a network.

    If a section from another package raises an error, the section is left out, and a line in the terminal names the
    section.
    """
    write_output(path, render_document(report_document(report)))


def report_document(report: Report) -> Document:
    """Return a report as a document: the verdict on the model, followed by all sections."""
    built = [(section.position, section.build(report)) for section in builtin_sections()]
    built += [_plugin_section(entry, report) for entry in installed_plugins(REPORT_SECTIONS).values()]
    ordered = sorted(((place, section) for place, section in built if section is not None), key=lambda entry: entry[0])
    verdict = report.verdict
    return Document(
        shortened(report.title),
        verdict.result,
        [section for _, section in ordered],
        lead=verdict.use,
        answers=verdict.answers,
        facts=report_facts(report),
        alerts=report.warnings,
    )


@cache
def builtin_sections() -> tuple[ReportSection, ...]:
    """Return one instance of every report section that this package defines."""
    modules = [import_module(f"{sections.__name__}.{name}") for name in module_names(sections.__name__)]
    return tuple(defined_class(module, ReportSection)() for module in modules)


def _plugin_section(entry: EntryPoint, report: Report) -> tuple[float, Section | None]:
    """Build a section from another package. Return the position and the content of the section.

    If the section raises an error, print a note and return `None` as its content.
    """
    try:
        plugin = load_plugin(entry)
        if not (isinstance(plugin, type) and issubclass(plugin, ReportSection)):
            raise InputError(None, f"it is no {ReportSection.__module__}.{ReportSection.__name__}")
        content = plugin().build(report)
        if content is not None:
            check_section(content)
        return float(plugin.position), content
    except Exception as error:  # an error in code of another package must not prevent the report
        package = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
        reason = str(error) if isinstance(error, InputError) else repr(error)
        show_note(f"report.html: the section '{entry.name}'{package} is left out: {' '.join(reason.split())}")
        return 0.0, None
