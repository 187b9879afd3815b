"""`python -m seqclf.compare`: compare finished runs by the files in their folders, without their models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.command_options import CompareConfig
    from seqclf.report.run_comparison import RunComparison


@command("compare", "seqclf.command_options.CompareConfig", imports_own_code=False)
def main(config: CompareConfig) -> RunComparison:
    """Compare runs, and print the table of their settings."""
    from seqclf.report.run_comparison import compare_runs, show_comparison

    comparison = compare_runs(config.runs, config.against, config.split)
    show_comparison(comparison)
    return comparison


if __name__ == "__main__":
    main()
