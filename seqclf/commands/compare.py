"""Compare finished runs by the files in their folders, without their models."""

from __future__ import annotations

from pathlib import Path

from seqclf.bundle.outputs import check_output_path
from seqclf.documents.html import render_document
from seqclf.runs.run_comparison import RunComparison, compare_runs, show_comparison
from seqclf.settings.command_settings import CompareConfig
from seqclf.system.atomic_files import write_output


def main(config: CompareConfig) -> RunComparison:
    """Compare runs, print the table of their settings, and write it as a page."""
    output = Path(config.output) if config.output else None
    if output is not None:
        check_output_path(output, ".html")
    comparison = compare_runs(config.runs, config.against, config.split)
    document = show_comparison(comparison)
    if output is not None:
        write_output(output, render_document(document))
    return comparison
