"""Rows of a batch, by the numbers and ids that their data file knows them by."""

from __future__ import annotations

from collections.abc import Iterable

from seqclf.data.storage.ragged import Split

MOST_NAMED = 4


def row_name(split: Split | None, index: int) -> str:
    """Return the number of a row in its file, and its id if that is another, from its index in the split.

    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from seqclf.data.storage.ragged import Ragged
    >>> sequences = Ragged(np.array([0, 1, 2]), {"token": np.array([1, 2])})
    >>> split = Split(sequences, np.array([0, 1]), pa.array(["a", "b"]), np.array([3, 7]))
    >>> row_name(split, 1), row_name(None, 1)
    ('row 7 (id b)', 'row with index 1')
    """
    if split is None:
        return f"row with index {index}"
    number, row_id = str(split.row_numbers[index]), str(split.ids[index].as_py())
    return f"row {number}" if row_id == number else f"row {number} (id {row_id})"


def row_names(split: Split | None, indices: Iterable[int], most: int = MOST_NAMED) -> str:
    """Return the names of the first `most` rows, and the number of the others."""
    rows = [int(index) for index in indices]
    names = ", ".join(row_name(split, index) for index in rows[:most])
    return names if len(rows) <= most else f"{names} and {len(rows) - most} more"
