"""Config of the command `report`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from seqclf.config.options import CommandOptions, FullText, Text
from seqclf.config.targets import read_trust


class ReportConfig(CommandOptions):
    """Config of the command `report`. See conf/report.yaml for the meaning and default of each key."""

    run: FullText
    output: Text | None
    trust: Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]
