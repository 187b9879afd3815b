"""Quarantine: collects rejected rows and their reasons, and stops the run if too many rows are rejected."""

from __future__ import annotations

import json
from pathlib import Path

from seqclf.data.schema.rows import Refusal
from seqclf.errors import InputError


class Quarantine:
    """Collects rejected rows while sources are read. `max_bad_share`: maximum fraction of them in a source.

    `on_bad_row`: `quarantine` and `drop` skip rejected rows, `error` stops the run at the first one.
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
        """Collect rejected rows. If `on_bad_row` is `error`, raise InputError for the first rejected row."""
        if refusals and self.on_bad_row == "error":
            raise refusals[0].error(" (data.on_bad_row=quarantine goes on without such rows)")
        self.refusals += refusals

    def check_share(self, source: str, rows: int, refused: list[Refusal]) -> None:
        """Raise InputError if too large a fraction of the `rows` of one source was rejected."""
        # The error quotes the first rejected row, because all rows are often rejected for the same reason.
        if refused and len(refused) > self.max_bad_share * rows:
            raise refused[0].error(
                f" ({len(refused)} of {rows} rows of {source} are refused, more than "
                f"data.max_bad_share={self.max_bad_share}; fix them or raise data.max_bad_share)"
            )

    def write(self, path: Path) -> None:
        """If `on_bad_row` is `quarantine`, write rejected rows, if there are any, to `path` as lines of JSON."""
        if self.refusals and self.on_bad_row == "quarantine":
            with path.open("w") as file:
                for refusal in self.refusals:
                    entry = {key: value for key, value in refusal._asdict().items() if value is not None}
                    file.write(json.dumps(entry) + "\n")
