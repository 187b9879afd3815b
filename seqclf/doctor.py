"""`python -m seqclf.doctor`: check that a bundle is sound on this machine, without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.bundle.soundness import Soundness
    from seqclf.command_options import DoctorConfig


@command("doctor", "seqclf.command_options.DoctorConfig")
def main(config: DoctorConfig) -> Soundness:
    """Run all checks, and print a table of their results."""
    from seqclf.bundle.soundness import Subject
    from seqclf.bundle.soundness_checks import examine
    from seqclf.documents.blocks import Table
    from seqclf.documents.formatting import plain_number
    from seqclf.documents.terminal import show_table

    found = examine(Subject(Path(config.bundle), config.device, config.threads))
    results = {True: "pass", False: "FAIL", None: "-"}
    figures = ["" if check.figure is None else plain_number(check.figure, 3) for check in found.checks]
    rows = [
        (check.name, results[check.passed], figure, check.detail)
        for check, figure in zip(found.checks, figures, strict=True)
    ]
    show_table(Table({"check": "text", "result": "text", "figure": "number", "detail": "text"}, rows), most=len(rows))
    return found


if __name__ == "__main__":
    main()
