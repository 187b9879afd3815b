"""The lines below the headline of a report: data, rows, date and version."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.reporting.formatting import number
from seqclf.reporting.run.report import Report


def report_facts(report: Report) -> dict[str, list[str]]:
    """Return name → lines of what identifies a report, without what is unknown."""
    held_out = f" + {number(report.holdout_rows)} for the threshold" if report.holdout_rows else ""
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
