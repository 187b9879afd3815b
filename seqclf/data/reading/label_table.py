"""Labels that stand in a table of their own: looked up by the id of a sequence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.casts import quote_identifier
from seqclf.data.reading.formats import connect_source, describe_columns
from seqclf.data.reading.record_batches import as_text, joined_key
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import require_columns
from seqclf.errors import InputError


class LabelTable:
    """`id` → label, and the split key if one is asked for. Memory: some 100 bytes a row.

    `keys`: the columns of the table that make the id; ids are compared as text.
    """

    def __init__(self, source: Source, keys: tuple[str, ...], label: str, key: str | None, key_column: str | None):
        self.source = source
        chosen = [f"{quote_identifier(column)} AS k{place}" for place, column in enumerate(keys)]
        chosen.append(f"CAST({quote_identifier(label)} AS VARCHAR) AS label")
        with connect_source(source) as (connection, relation):
            self.columns = describe_columns(connection, relation)
            require_columns(
                [*(("data.group_by or data.id", column) for column in keys), ("data.label", label)],
                self.columns,
                str(source),
            )
            self.has_key = key is not None and key_column in self.columns
            if self.has_key:
                chosen.append(f"{key} AS key")
            table = connection.sql(f"SELECT {', '.join(chosen)} FROM {relation}").to_arrow_table()
        names = as_text(joined_key([table.column(f"k{place}").combine_chunks() for place in range(len(keys))]))
        table = table.append_column("id", names).filter(names.is_valid())
        ids = _bytes(table.column("id"))
        order = np.argsort(ids, kind="stable")
        self.ids = ids[order]
        table = table.take(pa.array(order))
        self.labels = table.column("label").combine_chunks()
        self.keys = table.column("key").combine_chunks() if self.has_key else None
        self._check_once()

    def _check_once(self) -> None:
        same = np.flatnonzero(self.ids[1:] == self.ids[:-1])
        for row in same.tolist():
            if self.labels[row] != self.labels[row + 1]:
                raise InputError(
                    f"{self.source}: '{self.ids[row].decode()}' has two labels, '{self.labels[row]}' and "
                    f"'{self.labels[row + 1]}'; keep one"
                )

    def look_up(self, ids: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """The label of each id (null where there is none) and its split key."""
        if not len(self.ids):
            raise InputError(f"{self.source}: has no rows; give a row per sequence")
        wanted = _bytes(pc.fill_null(ids, ""))
        places = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        missing = (self.ids[places] != wanted) | ids.is_null().to_numpy(zero_copy_only=False)
        taken = pa.array(places, mask=missing)
        return self.labels.take(taken), None if self.keys is None else self.keys.take(taken)


def _bytes(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    found = texts.cast(pa.binary()).to_pylist()
    return np.array(found, dtype=np.bytes_) if found else np.empty(0, "S1")
