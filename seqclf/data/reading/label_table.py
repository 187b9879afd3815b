"""Labels from a separate table. The label of a sequence is found by its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import make_encoder
from seqclf.data.reading.canonical_columns import label_sql
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import COST, ID, LABEL, UNLABELLED, WEIGHT, RowKey, key_sql
from seqclf.data.schema.rows import SourceRows, as_text, joined_key
from seqclf.data.schema.schema import Field, Schema, require_columns
from seqclf.errors import InputError


class LabelTable:
    """Table that holds the label of each id, about 100 bytes a row. It may also hold times, groups and static fields.

    `id_columns`: columns that form the id, compared as text. `row_keys`: time and group columns. Columns that the table
    lacks are ignored. Raises InputError without an id or label column, or if an id has two labels.
    """

    def __init__(
        self,
        source: Source,
        id_columns: tuple[str, ...],
        label: str,
        row_keys: Sequence[RowKey] = (),
        static: Sequence[Field] = (),
    ):
        self.source, self.label = source, label
        with SourceReader(source) as reader:
            required = [*(("data.group_by or data.id", column) for column in id_columns), ("data.label", label)]
            types = reader.column_types
            require_columns(required, types, str(source))
            columns = {f"k{place}": key_sql(column, types[column]) for place, column in enumerate(id_columns)}
            columns["label"] = label_sql(label, types[label])
            self.row_keys = [key for key in row_keys if key.column in types]
            keys = {name: sql for key in self.row_keys for name, sql in key.sql(types).items()}
            self.static = [field for field in static if field.column in types]
            keys |= {field.name: make_encoder(field).list_sql(types, str(source)) for field in self.static}
            table = reader.select(columns | keys)
            self.label_column_type = types[label]
        id_texts = _id_texts(table)
        table = table.append_column("id", id_texts).filter(id_texts.is_valid())
        ids = _bytes(table.column("id"))
        # Ids are sorted for a binary search, because a dict with Python strings would take several times the memory.
        order = np.argsort(ids, kind="stable")
        self.ids = ids[order]
        table = table.take(pa.array(order))
        self.labels = table.column("label").combine_chunks()
        self.keys = {name: table.column(name).combine_chunks() for name in keys}
        self._require_one_value()

    def _require_one_value(self) -> None:
        """Raise InputError if two rows with the same id have different labels, or values of a static field."""
        repeated = np.flatnonzero(self.ids[1:] == self.ids[:-1]).tolist()
        of_fields = {field.column: self.keys[field.name] for field in self.static}
        of_fields |= {key.column: self.keys[key.kind] for key in self.row_keys if key.kind in (WEIGHT, COST)}
        for (column, values), row in product({self.label: self.labels, **of_fields}.items(), repeated):
            first, second = (values[place].as_py() for place in (row, row + 1))
            if first != second:
                shown = " and ".join(f"{value[0] if isinstance(value, list) else value}" for value in (first, second))
                problem = f"'{self.ids[row].decode()}' has two values of {column}, {shown}"
                raise InputError(self.source, problem, "keep one")

    def without_joined(self, schema: Schema, available: AbstractSet[str]) -> Schema:
        """Return the schema of the rows before `labelled`: without the label and the static fields of this table.

        `available`: columns of the rows. A static field that they hold is read from them.
        """
        joined = {field.name for field in self.static if not available >= set(field.columns)}
        return replace(schema, label=None, fields=tuple(field for field in schema.fields if field.name not in joined))

    def labelled(self, rows: SourceRows) -> SourceRows:
        """Add labels to `rows` by their ids, and times, groups and static fields that only the label table has."""
        found = self.look_up(as_text(rows.columns.column(ID)))
        columns = {name: rows.columns.column(name) for name in rows.columns.schema.names}
        return rows._replace(columns=pa.record_batch({**found, **columns}))

    def look_up(self, ids: pa.Array) -> dict[str, pa.Array]:
        """Look up N ids, given as text. Return a dict canonical column → (N,) labels, times, groups and UNLABELLED.

        For an id that is not in the table, they are null, and UNLABELLED is true.
        """
        if not len(self.ids):
            raise no_rows(self.source)
        positions, missing = np.zeros(len(ids), np.int64), np.ones(len(ids), bool)
        for spelled in _spellings(ids):
            if not missing.any():
                break
            searched = _bytes(pc.fill_null(spelled, ""))
            places = np.minimum(np.searchsorted(self.ids, searched), len(self.ids) - 1)
            positions = np.where(missing, places, positions)
            missing &= (self.ids[places] != searched) | ids.is_null().to_numpy(zero_copy_only=False)
        indices = pa.array(positions, mask=missing)
        found = {LABEL: self.labels, **self.keys}
        return {**{name: values.take(indices) for name, values in found.items()}, UNLABELLED: pa.array(missing)}


def _id_texts(table: pa.Table) -> pa.Array:
    """Return the id of each row as text, joined from all columns before `label`."""
    parts = table.columns[: table.column_names.index("label")]
    return as_text(joined_key([part.combine_chunks() for part in parts]))


def _spellings(ids: pa.Array) -> Iterator[pa.Array]:
    """Yield the ids as they are, and whole numbers with and without the .0 of a pandas column that has gaps."""
    yield ids
    for pattern, spelled in ((r"\.0+( \||$)", r"\1"), (r"(^|\| )(-?[0-9]+)( \||$)", r"\1\2.0\3")):
        changed = ids
        for _ in range(2):  # neighbours share a separator
            changed = pc.replace_substring_regex(changed, pattern, spelled)
        yield changed


def _bytes(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    values = texts.cast(pa.binary()).to_pylist()
    return np.array(values, dtype=np.bytes_) if values else np.empty(0, "S1")
