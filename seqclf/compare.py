"""`python -m seqclf.compare`: compare finished runs by the files in their folders, without their models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.command_options import CompareConfig
    from seqclf.report.run_comparison import RunComparison


@command("compare", "seqclf.command_options.CompareConfig", imports_own_code=False)
def main(config: CompareConfig) -> RunComparison:
    """Compare runs, print the table of their settings, and write it to a page or a JSON file."""
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.documents.html import render_document
    from seqclf.documents.terminal import show_document
    from seqclf.report.comparison_page import comparison_document
    from seqclf.report.run_comparison import compare_runs
    from seqclf.system.atomic_files import write_output

    output = Path(config.output) if config.output else None
    if output:
        check_output_path(output, ".html", ".json")
    comparison = compare_runs(config.runs, config.against, config.split)
    document = comparison_document(comparison)
    show_document(document)
    if output:
        figures = json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False) + "\n"
        write_output(output, render_document(document) if output.suffix.lower() == ".html" else figures)
    return comparison


if __name__ == "__main__":
    main()
