"""Rows that were refused: kept with their reasons, and too many of them stop the run."""

from __future__ import annotations

import json
from pathlib import Path

from seqclf.data.reading.record_batches import Refusal
from seqclf.errors import InputError


class Quarantine:
    """Collects refusals while one source is read.

    `on_bad_row`: `quarantine` and `drop` go on without the row, `error` stops at the first. A share of refused rows
    above `max_bad_share` stops the run at the end of the source.
    """

    def __init__(self, on_bad_row: str, max_bad_share: float):
        if on_bad_row not in ("quarantine", "drop", "error"):
            raise InputError(f"data.on_bad_row={on_bad_row}: must be quarantine, drop or error")
        if not (isinstance(max_bad_share, (int, float)) and 0 <= max_bad_share <= 1):
            raise InputError(f"data.max_bad_share={max_bad_share}: must be between 0 and 1")
        self.on_bad_row = on_bad_row
        self.max_bad_share = max_bad_share
        self.refusals: list[Refusal] = []

    def add(self, refusals: list[Refusal]) -> None:
        if refusals and self.on_bad_row == "error":
            raise InputError(f"{refusals[0]} (data.on_bad_row=quarantine goes on without such rows)")
        self.refusals += refusals

    def check_share(self, source: str, rows: int, refused: list[Refusal]) -> None:
        """Raise if `refused`, of the `rows` of one source, are too many."""
        if refused and len(refused) > self.max_bad_share * rows:
            raise InputError(
                f"{refused[0]} ({len(refused)} of {rows} rows of {source} are refused, more than "
                f"data.max_bad_share={self.max_bad_share}; mend them or raise the share)"
            )

    def write(self, path: Path) -> None:
        if self.refusals and self.on_bad_row == "quarantine":
            with path.open("w") as file:
                for refusal in self.refusals:
                    known = {key: value for key, value in refusal._asdict().items() if value is not None}
                    file.write(json.dumps(known) + "\n")
