"""report.html: the verdict on a run or an evaluation, for readers who decide whether to use the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

from seqclf.documents.formatting import number, shortened
from seqclf.documents.html import RenderedSection, render_section, render_sections
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.report import sections
from seqclf.report.report import Report
from seqclf.report.section import ReportSection
from seqclf.system.atomic_files import write_output
from seqclf.system.plugins import REPORT_SECTIONS, defined_class, installed_plugins, load_plugin, module_names

# The lines below the headline of a report: data, rows, date and version.


def report_facts(report: Report) -> dict[str, list[str]]:
    """Return name → lines of what identifies a report, without what is unknown."""
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
    """Sources of the splits, a line each, or the one source of all splits."""
    sources = report.sources
    if len(set(sources.values())) == 1:
        return list(sources.values())[:1]
    return [f"{split}: {source}" for split, source in sources.items()]


def write_report(report: Report, path: Path) -> None:
    """Write a page that needs no other file and no network.

    A section of another package that fails is left out, and a line on the terminal names it.
    """
    built = [(section.position, _render(section, report)) for section in builtin_sections()]
    built += [_render_plugin(entry, report) for entry in installed_plugins(REPORT_SECTIONS).values()]
    ordered = [rendered for _, rendered in sorted(built, key=lambda entry: entry[0]) if rendered is not None]
    title, facts = shortened(report.title), report_facts(report)
    write_output(path, render_sections("run.html", ordered, title=title, verdict=report.verdict, facts=facts))


@cache
def builtin_sections() -> tuple[ReportSection, ...]:
    """Return the sections of this package."""
    modules = [import_module(f"{sections.__name__}.{name}") for name in module_names(sections.__name__)]
    return tuple(defined_class(module, ReportSection)() for module in modules)


def _render(section: ReportSection, report: Report) -> RenderedSection | None:
    content = section.build(report)
    return None if content is None else render_section(content)


def _render_plugin(entry: EntryPoint, report: Report) -> tuple[float, RenderedSection | None]:
    """Render the section of another package. It is None if that fails, which the terminal says."""
    try:
        plugin = load_plugin(entry)
        if not (isinstance(plugin, type) and issubclass(plugin, ReportSection)):
            raise InputError(None, f"it is no {ReportSection.__module__}.{ReportSection.__name__}")
        section = plugin()
        return float(section.position), _render(section, report)
    except Exception as error:  # code of another package must not cost the page
        package = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
        reason = str(error) if isinstance(error, InputError) else repr(error)
        show_note(f"report.html: the section '{entry.name}'{package} is left out: {' '.join(reason.split())}")
        return 0.0, None
