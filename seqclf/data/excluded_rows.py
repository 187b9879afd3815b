"""Rows that `data.exclude` lists by their ids, and that are in no split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.casts import ID
from seqclf.data.schema.rows import as_text
from seqclf.errors import InputError


class ExcludedRows:
    """Ids in a UTF-8 text file, one a line, and which of them rows have. `path`: None for no ids.

    Raises InputError for a file that cannot be read or that has no ids.
    """

    def __init__(self, path: str | None):
        self.key = f"data.exclude={path}"
        try:
            text = "" if path is None else Path(path).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(self.key, f"cannot be read ({error})", "give a UTF-8 text file, one id a line") from None
        self.ids = pa.array(dict.fromkeys(line for line in text.split("\n") if line.strip()), pa.string())
        if path is not None and not len(self.ids):
            raise InputError(self.key, "holds no id", "write one id a line, or leave it out")
        self.found = np.zeros(len(self.ids), bool)

    def among(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return True (N,) for the rows of canonical columns that are listed."""
        if not len(self.ids):
            return np.zeros(columns.num_rows, bool)
        places = pc.index_in(as_text(columns.column(ID)), value_set=self.ids)
        self.found[places.drop_null().to_numpy()] = True
        return places.is_valid().to_numpy(zero_copy_only=False)

    def require_found(self) -> None:
        """Raise InputError if an id is that of no row. Call it after all rows are read."""
        if len(lost := np.flatnonzero(~self.found)):
            problem = f"{len(lost)} of {len(self.ids)} ids are of no row, such as '{self.ids[int(lost[0])]}'"
            raise InputError(self.key, problem, "write ids as in predictions.parquet, or take the lines out")
