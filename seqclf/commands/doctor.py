"""Check a bundle on this machine, without PyTorch."""

from __future__ import annotations

from pathlib import Path

from seqclf.bundle.soundness import CheckedBundle, Soundness, examine
from seqclf.documents.blocks import Table
from seqclf.documents.formatting import plain_number
from seqclf.documents.terminal import show_table
from seqclf.settings.command_settings import DoctorConfig


def main(config: DoctorConfig) -> Soundness:
    """Run all checks, and print a table of their results."""
    found = examine(CheckedBundle(Path(config.bundle), config.device, config.threads))
    columns = {"check": "text", "result": "text", "figure": "number", "detail": "text"}
    texts = {True: "pass", False: "FAIL", None: "-"}
    rows = [
        (each.name, texts[each.passed], "" if each.figure is None else plain_number(each.figure, 3), each.detail)
        for each in found.checks
    ]
    show_table(Table(columns, rows), most=len(rows))
    return found
