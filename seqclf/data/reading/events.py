"""Event tables, a row per step → sequences, a row per group.

DuckDB sorts by group, within its memory limit and spilling to disk, unless the table is sorted already; the stream is
then cut where the group changes, which is ten times faster than gathering lists in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.casts import ID, KEY, LABEL, quote_identifier
from seqclf.data.reading.event_columns import EVENTS, channel, event_columns, event_order, event_seconds, group
from seqclf.data.reading.record_batches import CanonicalBatch, joined_key
from seqclf.data.reading.sources import Source, local_files
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

READ_EVENTS = 122_880
ROW = "row number"
PLACE = "file number"
MOST_VALUES = 65_536  # that two bytes can tell apart


def read_events(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    types: dict[str, str],
    source: Source,
    schema: Schema,
    key: str | None,
) -> Iterator[CanonicalBatch]:
    """See `reading.read`. Groups come sorted by their key; their `id`, unless the schema names one, is the key."""
    columns = event_columns(schema, types, str(source), key)
    is_parquet = relation.startswith("read_parquet(")
    if is_parquet:
        columns = _narrowed(connection, relation, columns)
    keys = [quote_identifier(group(place)) for place in range(len(schema.group_by))]
    files = [str(source)]
    place = [quote_identifier(ROW)]
    if is_parquet:
        relation = relation[:-1] + ", file_row_number = true)"
        columns.append(f"CAST(file_row_number + 1 AS UINTEGER) AS {quote_identifier(ROW)}")
        paths = local_files(source)
        if len(paths) > 1:
            files = [str(path) for path in paths]
            columns.append(f"file_index AS {quote_identifier(PLACE)}")
            place = [quote_identifier(PLACE), quote_identifier(ROW)]
    else:
        columns.append(f"row_number() OVER () AS {quote_identifier(ROW)}")
    query = f"SELECT {', '.join(columns)} FROM {relation} AS {EVENTS}"
    order = event_order(schema, types)
    groups = [f"{EVENTS}.{quote_identifier(name)}" for name in schema.group_by]
    if not (is_parquet and _is_sorted(connection, relation, [*groups, *order])):
        query += f" ORDER BY {', '.join([*keys, *order, *place])}"
    if replaced := event_seconds(schema, types):
        query = f"SELECT * REPLACE ({', '.join(replaced)}) FROM ({query})"
    reader = connection.sql(query).to_arrow_reader(READ_EVENTS)
    for events in _whole_groups(reader, len(keys)):
        yield _batch(events, schema, files)


def _is_sorted(connection: duckdb.DuckDBPyConnection, relation: str, expressions: list[str]) -> bool:
    """Whether the rows already ascend by all expressions; the first that does not ends the search."""
    names = [f"e{place}" for place in range(len(expressions))]
    chosen = ", ".join(f"{expression} AS {name}" for expression, name in zip(expressions, names, strict=True))
    before: pa.RecordBatch | None = None
    for batch in connection.sql(f"SELECT {chosen} FROM {relation} AS {EVENTS}").to_arrow_reader(READ_EVENTS):
        joined = batch if before is None else pa.concat_batches([before, batch])
        try:
            if not _ascends([joined.column(name) for name in names]):
                return False
        except pa.ArrowNotImplementedError:  # of a type that Arrow does not compare
            return False
        before = joined.slice(joined.num_rows - 1) if joined.num_rows else None
    return True


def _ascends(columns: list[pa.Array]) -> bool:
    """Whether rows never fall, compared column by column as words are letter by letter; nulls and NaN count as
    falling."""
    if not len(columns[0]):
        return True
    equal = np.ones(len(columns[0]) - 1, bool)
    for column in columns:
        if column.null_count or (pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()):
            return False
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        if (equal & pc.less(after, before).to_numpy(zero_copy_only=False)).any():
            return False
        equal &= pc.equal(after, before).to_numpy(zero_copy_only=False)
    return True


def _narrowed(connection: duckdb.DuckDBPyConnection, relation: str, columns: list[str]) -> list[str]:
    """The SELECT list with texts of few values as enumerations: a sort moves one byte instead of sixteen, and Arrow
    gets codes. Parquet tells the distinct values of a column without reading all of it."""
    kinds = connection.execute(f"DESCRIBE SELECT {', '.join(columns)} FROM {relation}").fetchall()
    narrowed = []
    for place, (expression, (name, kind, *_)) in enumerate(zip(columns, kinds, strict=True)):
        value = expression.removesuffix(f" AS {quote_identifier(name)}").removesuffix(f" AS {name}")
        if kind == "VARCHAR" and not name.startswith("group "):
            found = f"SELECT DISTINCT {value} AS value FROM {relation} LIMIT {MOST_VALUES + 1}"
            connection.execute(f"CREATE TEMP TABLE values_{place} AS {found}")
            count = connection.execute(f"SELECT count(*) FROM values_{place}").fetchone()
            if count is not None and 0 < count[0] <= MOST_VALUES:
                wanted = f"SELECT value FROM values_{place} WHERE value IS NOT NULL ORDER BY value"
                connection.execute(f"CREATE TYPE enumeration_{place} AS ENUM ({wanted})")
                expression = f"CAST({value} AS enumeration_{place}) AS {quote_identifier(name)}"
        narrowed.append(expression)
    return narrowed


def _whole_groups(batches: Iterable[pa.RecordBatch], keys: int) -> Iterator[pa.RecordBatch]:
    """The same events in batches that end where a group does."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and not _same_group(held[-1], batch, keys):
            yield _joined(held)
            held = []
        starts = _starts(batch, keys)
        if len(starts) > 1:
            last = int(starts[-1])
            yield _joined([*held, batch.slice(0, last)])
            held, batch = [], batch.slice(last)
        held.append(batch)
    if held:
        yield _joined(held)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(parts) if len(parts) > 1 else parts[0]


def _same_group(before: pa.RecordBatch, after: pa.RecordBatch, keys: int) -> bool:
    return all(
        before.column(group(place))[before.num_rows - 1].equals(after.column(group(place))[0]) for place in range(keys)
    )


def _starts(events: pa.RecordBatch, keys: int) -> np.ndarray:
    """Where each group begins: (G,) ascending, the first is 0."""
    changes = np.zeros(events.num_rows - 1, bool)
    for place in range(keys):
        changes |= _differs(events.column(group(place)))
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _differs(column: pa.Array) -> np.ndarray:
    """(N - 1,) whether each value differs from the one before; null equals null."""
    codes = column.indices if pa.types.is_dictionary(column.type) else column
    before, after = codes.slice(0, len(codes) - 1), codes.slice(1)
    changed = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        changed |= nulls[1:] != nulls[:-1]
    return changed


def _batch(events: pa.RecordBatch, schema: Schema, files: list[str]) -> CanonicalBatch:
    starts = _starts(events, len(schema.group_by))
    offsets = pa.array(np.append(starts, events.num_rows), pa.int32())
    first = pa.array(starts)
    columns: dict[str, pa.Array] = {}
    if schema.label is not None:
        columns[LABEL] = _constant(events.column(LABEL), starts)
    keys = [_named(events.column(group(place)).take(first)) for place in range(len(schema.group_by))]
    columns[ID] = _plain(events.column(ID).take(first)) if schema.id is not None else joined_key(keys)
    for field in schema.fields:
        channels = [events.column(channel(field.name, position)) for position in range(len(field.columns))]
        columns[field.name] = pa.ListArray.from_arrays(offsets, _steps(channels))
    if KEY in events.schema.names:
        columns[KEY] = events.column(KEY).take(first)
        if pa.types.is_integer(columns[KEY].type):  # times differ within a sequence, of which the first one counts
            _check_one(events.column(KEY), starts, columns[ID])
    numbers = events.column(ROW).to_numpy().astype(np.int64)
    places = np.unique(events.column(PLACE).to_numpy()[starts]) if len(files) > 1 else np.zeros(1, np.int64)
    file = files[int(places[0])] if len(places) == 1 else ", ".join(files[place] for place in places[:3])
    return CanonicalBatch(file, numbers[starts], pa.record_batch(columns), numbers)


def _steps(channels: list[pa.Array]) -> pa.Array:
    """(S,) values, or vectors of fixed size where there are several channels; missing numbers in them are NaN."""
    if len(channels) == 1:
        return channels[0]
    stacked = np.stack([pc.fill_null(one, np.nan).to_numpy(zero_copy_only=False) for one in channels], axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(stacked.reshape(-1)), len(channels))


def _named(keys: pa.Array) -> pa.Array:
    """Keys of groups; NaN names none."""
    is_nan = pc.is_nan(keys) if pa.types.is_floating(keys.type) else None
    return keys if is_nan is None else pc.if_else(is_nan, pa.scalar(None, keys.type), keys)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _check_one(keys: pa.Array, starts: np.ndarray, ids: pa.Array) -> None:
    """Raise unless each group's events say the same of where it belongs."""
    bad = _changing(keys, starts)
    if len(bad):
        raise InputError(
            f"data.split.column: changes inside the sequence '{ids[int(bad[0])]}'; name a column that is the same in "
            "all events of a sequence, or split by data.split.by=random or distinct"
        )


def _constant(labels: pa.Array, starts: np.ndarray) -> pa.Array:
    """The label of each group, null where its events disagree."""
    mask = np.zeros(len(starts), bool)
    mask[_changing(labels, starts)] = True
    labels = labels.take(pa.array(starts)).cast(pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), labels)


def _changing(column: pa.Array, starts: np.ndarray) -> np.ndarray:
    """Which groups hold more than one value."""
    changed = _differs(column)
    changed[starts[1:] - 1] = False
    return np.unique(np.searchsorted(starts, np.flatnonzero(changed) + 1, side="right") - 1)
