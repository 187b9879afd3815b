"""Original texts of evaluation rows, stored beside their tokens for reports.

Tokens do not tell what a text looked like: spaces, capitals and unknown words are lost. Training rows have no texts in
the store, as reports show none of them. The texts of the other splits stay on disk until a row is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:  # encoders import this folder
    from seqclf.data.encoding.encoder import Encoder

TEXTS = "texts.arrow"


class StoredTexts(NamedTuple):
    """Texts of the rows of a split, by field. `rows`: (N,) positions in the file, None for all of its rows in order."""

    path: Path
    rows: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> StoredTexts:
        """Return the texts of some rows: (M,) positions. Nothing is read."""
        return StoredTexts(self.path, rows if self.rows is None else self.rows[rows])

    def of_row(self, row: int) -> dict[str, str]:
        """Read the text of each field of one row."""
        position = row if self.rows is None else int(self.rows[row])
        with pa.memory_map(str(self.path)) as source:  # only the pages of this row are read
            table = pa.ipc.open_file(source).read_all()
            return {name: table.column(name)[position].as_py() for name in table.column_names}


def staged_text(name: str) -> str:
    """Return the staged column of the texts of a field. With a space, so that no field can have its name."""
    return f"text of {name}"


def text_columns(
    columns: pa.RecordBatch, staged: Mapping[str, pa.Array], encoders: Mapping[str, Encoder]
) -> dict[str, pa.Array]:
    """Return the columns to stage next to `staged`, so that `original_texts` has the text of each field of texts.

    `columns`: the canonical columns. A field that is staged as its text needs no further column.
    """
    return {
        staged_text(name): columns.column(name)
        for name, encoder in encoders.items()
        if encoder.holds_text and not pa.types.is_string(staged[name].type)
    }


def original_texts(staged: pa.RecordBatch, encoders: Mapping[str, Encoder]) -> pa.RecordBatch | None:
    """Return the texts of staged rows by field, None for a dataset without texts."""
    names = [name for name, encoder in encoders.items() if encoder.holds_text]
    if not names:
        return None
    present = set(staged.schema.names)
    return pa.record_batch(
        {name: staged.column(staged_text(name) if staged_text(name) in present else name) for name in names}
    )
