"""Counts of one split: its rows, tokens and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqclf.system.json_result import JsonResult


@dataclass(kw_only=True)
class SplitCounts(JsonResult):
    """Counts of one split, which grow while it is written and are kept with the dataset.

    `used` rows, of which `truncated` were cut. `tokens`, and `unknown_tokens` whose value is not in the vocabulary.
    `refused` rows. Event tables only: `events`, the rows of the source, and `refused_events`, those lost with a refused
    sequence or on a malformed line. Folders only: `hidden_files`, which were not read.
    """

    # Absent where the source can have no such rows, while a 0 is written: nothing was lost.
    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"events", "refused_events", "hidden_files"})

    used: int = 0
    truncated: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    refused: int = 0
    events: int | None = None
    refused_events: int | None = None
    hidden_files: int | None = None
