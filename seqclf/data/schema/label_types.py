"""Types of labels. Classes are texts everywhere; predictions have the type of the column that held the labels."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.errors import InputError

ARROW_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
Label = str | int | float | bool
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")  # those that fit in int64
LABEL_TYPES = {
    **dict.fromkeys(INTEGERS, "integer"),
    "FLOAT": "number",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
}


def label_type(column_type: str) -> str:
    """Return the type of the labels in a column of a DuckDB type.

    >>> label_type("BIGINT"), label_type("VARCHAR"), label_type("DECIMAL(4,2)")
    ('integer', 'text', 'text')
    """
    return LABEL_TYPES.get(column_type, "text")


def typed_labels(classes: Sequence[str], label_type: str) -> pa.Array:
    """(C,) labels of the classes in their type. Raises InputError for a class that is no such value.

    >>> typed_labels(["false", "true"], "boolean").to_pylist(), typed_labels(["2", "10"], "integer").to_pylist()
    ([False, True], [2, 10])
    """
    try:
        return pc.cast(pa.array(classes, pa.string()), ARROW_TYPES[label_type])
    except pa.ArrowInvalid:
        raise InputError("schema.label_type", f"the classes are not {label_type}") from None
