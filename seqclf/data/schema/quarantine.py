"""Quarantine: refused rows and their reasons. Too many of them stop the run."""

from __future__ import annotations

import json
from pathlib import Path

from seqclf.data.schema.rows import Refusal
from seqclf.errors import InputError


class Quarantine:
    """Collects refusals while sources are read.

    `on_bad_row`: `quarantine` and `drop` go on without the row, `error` stops at the first. `max_bad_share`: largest
    fraction of the rows of a source that may be refused.
    """

    def __init__(self, on_bad_row: str, max_bad_share: float):
        if on_bad_row not in ("quarantine", "drop", "error"):
            raise InputError(f"data.on_bad_row={on_bad_row}", "must be quarantine, drop or error")
        if not (isinstance(max_bad_share, (int, float)) and 0 <= max_bad_share <= 1):
            raise InputError(f"data.max_bad_share={max_bad_share}", "must be between 0 and 1")
        self.on_bad_row = on_bad_row
        self.max_bad_share = max_bad_share
        self.refusals: list[Refusal] = []

    def add(self, refusals: list[Refusal]) -> None:
        """Collect refusals. Raises InputError for the first one if `on_bad_row` is `error`."""
        if refusals and self.on_bad_row == "error":
            raise refusals[0].error(" (data.on_bad_row=quarantine goes on without such rows)")
        self.refusals += refusals

    def check_share(self, source: str, rows: int, refused: list[Refusal]) -> None:
        """Raise InputError if `refused` are too many of the `rows` of one source."""
        # The first refusal is quoted, as one cause often explains all.
        if refused and len(refused) > self.max_bad_share * rows:
            raise refused[0].error(
                f" ({len(refused)} of {rows} rows of {source} are refused, more than "
                f"data.max_bad_share={self.max_bad_share}; fix them or raise data.max_bad_share)"
            )

    def write(self, path: Path) -> None:
        """Write a line of JSON for each refusal, if `on_bad_row` is `quarantine` and there are any."""
        if self.refusals and self.on_bad_row == "quarantine":
            with path.open("w") as file:
                for refusal in self.refusals:
                    entry = {key: value for key, value in refusal._asdict().items() if value is not None}
                    file.write(json.dumps(entry) + "\n")
