"""Config of the command `report`."""

from __future__ import annotations

from seqclf.config.options import CommandOptions, FullText, Text


class ReportConfig(CommandOptions):
    """Config of the command `report`. See conf/report.yaml for the meaning and default of each key."""

    run: FullText
    output: Text | None
