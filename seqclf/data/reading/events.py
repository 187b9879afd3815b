"""Event tables, one row per token, read as sequences, one per group.

DuckDB sorts by group, within its memory limit and spilling to disk, unless the table is sorted already. The sorted
stream is then cut where the group changes, which is ten times faster than gathering lists in SQL.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.canonical_columns import EVENTS, channel, event_columns, event_order, group, sorted_columns
from seqclf.data.reading.object_store import url_of
from seqclf.data.reading.relations import Relation
from seqclf.data.schema.casts import GROUP, GROUP_NAME, ID, LABEL, ROW, TIME, TIME_END, quote_identifier
from seqclf.data.schema.rows import SourceRows, joined_key
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError
from seqclf.system import progress

READ_EVENTS = 122_880  # rows at a time: one row group of DuckDB
FILE_NUMBER = "file number"  # the column with the position of each event's file
MAX_ENUMERATION_VALUES = 65_536  # two bytes


def read_events(
    connection: duckdb.DuckDBPyConnection,
    rows: Relation,
    column_types: dict[str, str],
    paths: Sequence[Path],
    source_name: str,
    schema: Schema,
    keys: Mapping[str, str],
) -> Iterator[SourceRows]:
    """Read the groups of an event table, sorted by their key (see `SourceReader.read`).

    The `id` of a group is the column that the schema names, or else its key. Several files whose rows
    DuckDB numbers (Parquet) are numbered one by one, those of other formats as one table.
    """
    expressions = event_columns(schema, column_types, source_name, keys)
    relation, numbered = rows.sql, rows.numbered_sql
    file_names = [source_name]
    file_order = [quote_identifier(ROW)]
    if numbered is None:
        expressions.append(f"row_number() OVER () AS {quote_identifier(ROW)}")
    else:
        expressions = _with_enumerations(connection, relation, expressions)
        relation = numbered
        expressions.append(f"CAST(file_row_number + 1 AS UINTEGER) AS {quote_identifier(ROW)}")
        if len(paths) > 1:
            file_names = [url_of(str(path)) for path in paths]
            expressions.append(f"file_index AS {quote_identifier(FILE_NUMBER)}")
            file_order = [quote_identifier(FILE_NUMBER), quote_identifier(ROW)]
    # The alias keeps the names in ORDER BY apart: a column that orders may be called like one of the expressions.
    query = f"SELECT {', '.join(expressions)} FROM {relation} AS {EVENTS}"
    order = event_order(schema, column_types)
    group_columns = [f"{EVENTS}.{quote_identifier(column)}" for column in schema.group_by]
    # The first events come once DuckDB has read and sorted all of them.
    with progress.stage(f"sorting {Path(source_name).name}", share=lambda: connection.query_progress() / 100):
        # Only Parquet is fast enough to be read once more for this.
        if numbered is None or not _is_sorted(connection, relation, [*group_columns, *order]):
            groups = [quote_identifier(group(position)) for position in range(len(schema.group_by))]
            query += f" ORDER BY {', '.join([*groups, *order, *file_order])}"
        if replaced := sorted_columns(schema, column_types):
            query = f"SELECT * REPLACE ({', '.join(replaced)}) FROM ({query})"
        stream = connection.sql(query).to_arrow_reader(READ_EVENTS)
        first = next(stream, None)
    stream = itertools.chain([] if first is None else [first], stream)
    for events in _whole_groups(stream, len(schema.group_by)):
        yield _sequences(events, schema, file_names)


def _is_sorted(connection: duckdb.DuckDBPyConnection, relation: str, expressions: list[str]) -> bool:
    """Check whether the rows ascend by all expressions already."""
    names = [f"e{position}" for position in range(len(expressions))]
    selected = ", ".join(f"{expression} AS {name}" for expression, name in zip(expressions, names, strict=True))
    last_row: pa.RecordBatch | None = None  # the next record batch must go on from it
    stream = connection.sql(f"SELECT {selected} FROM {relation} AS {EVENTS}").to_arrow_reader(READ_EVENTS)
    for record_batch in stream:
        joined = record_batch if last_row is None else pa.concat_batches([last_row, record_batch])
        try:
            if not _ascends([joined.column(name) for name in names]):
                return False
        except pa.ArrowNotImplementedError:  # of a type that Arrow does not compare
            return False
        last_row = joined.slice(joined.num_rows - 1) if joined.num_rows else None
    return True


def _ascends(columns: list[pa.Array]) -> bool:
    """Check whether no row is below the one before, compared by the first column, then the second, and so on.

    Nulls and NaN count as falling, so that DuckDB decides on their order.
    """
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


def _with_enumerations(connection: duckdb.DuckDBPyConnection, relation: str, expressions: list[str]) -> list[str]:
    """Make enumerations of text columns with few values: a sort moves one or two bytes instead of sixteen, and Arrow
    gets codes. For Parquet only, of which DuckDB finds the distinct values without reading every row."""
    described = connection.execute(f"DESCRIBE SELECT {', '.join(expressions)} FROM {relation}").fetchall()
    result = []
    for position, (expression, (name, kind, *_)) in enumerate(zip(expressions, described, strict=True)):
        value = expression.removesuffix(f" AS {quote_identifier(name)}").removesuffix(f" AS {name}")
        if kind == "VARCHAR" and not name.startswith("group "):
            distinct = f"SELECT DISTINCT {value} AS value FROM {relation} LIMIT {MAX_ENUMERATION_VALUES + 1}"
            connection.execute(f"CREATE TEMP TABLE values_{position} AS {distinct}")
            ((count,),) = connection.execute(f"SELECT count(*) FROM values_{position}").fetchall()
            if 0 < count <= MAX_ENUMERATION_VALUES:
                values = f"SELECT value FROM values_{position} WHERE value IS NOT NULL ORDER BY value"
                connection.execute(f"CREATE TYPE enumeration_{position} AS ENUM ({values})")
                expression = f"CAST({value} AS enumeration_{position}) AS {quote_identifier(name)}"
        result.append(expression)
    return result


def _whole_groups(record_batches: Iterable[pa.RecordBatch], key_count: int) -> Iterator[pa.RecordBatch]:
    """Cut the same events into record batches that end where a group does."""
    pending: list[pa.RecordBatch] = []  # events of one group, which may go on
    for record_batch in record_batches:
        if not record_batch.num_rows:
            continue
        if pending and not _same_group(pending[-1], record_batch, key_count):
            yield _joined(pending)
            pending = []
        starts = _group_starts(record_batch, key_count)
        if len(starts) > 1:
            last_start = int(starts[-1])
            yield _joined([*pending, record_batch.slice(0, last_start)])
            pending, record_batch = [], record_batch.slice(last_start)
        pending.append(record_batch)
    if pending:
        yield _joined(pending)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(parts) if len(parts) > 1 else parts[0]


def _same_group(before: pa.RecordBatch, after: pa.RecordBatch, key_count: int) -> bool:
    """Compare the last group of one record batch with the first group of the next."""
    for position in range(key_count):
        last, first = before.column(group(position))[before.num_rows - 1], after.column(group(position))[0]
        if not last.equals(first):
            return False
    return True


def _group_starts(events: pa.RecordBatch, key_count: int) -> np.ndarray:
    """(G,) ascending positions of the first event of each group. The first is 0."""
    changes = np.zeros(events.num_rows - 1, bool)
    for position in range(key_count):
        changes |= _differs(events.column(group(position)))
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _differs(column: pa.Array) -> np.ndarray:
    """(N - 1,) bool: each value compared with the one before. Null equals null."""
    codes = column.indices if pa.types.is_dictionary(column.type) else column
    before, after = codes.slice(0, len(codes) - 1), codes.slice(1)
    changed = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        changed |= nulls[1:] != nulls[:-1]
    return changed


def _sequences(events: pa.RecordBatch, schema: Schema, file_names: list[str]) -> SourceRows:
    """Canonical columns of sorted events that form complete groups."""
    starts = _group_starts(events, len(schema.group_by))
    offsets = pa.array(np.append(starts, events.num_rows), pa.int32())
    first_events = pa.array(starts)
    columns: dict[str, pa.Array] = {}
    if schema.label is not None:
        columns[LABEL] = _constant(events.column(LABEL), starts)
    keys = [events.column(group(position)).take(first_events) for position in range(len(schema.group_by))]
    columns[ID] = _decoded(events.column(ID).take(first_events)) if schema.id is not None else joined_key(keys)
    for field in schema.fields:
        channels = [events.column(channel(field.name, position)) for position in range(len(field.columns))]
        columns[field.name] = pa.ListArray.from_arrays(offsets, _tokens(channels))
    for name in (TIME, GROUP, GROUP_NAME):
        if name in events.schema.names:
            columns[name] = _decoded(events.column(name).take(first_events))
    if GROUP in columns:
        _require_constant(events.column(GROUP), starts, columns[ID])
    if TIME in columns:  # a time may differ within a sequence
        times = events.column(TIME).to_numpy(zero_copy_only=False)
        columns[TIME_END] = pa.array(np.fmax.reduceat(times, starts))
    event_row_numbers = events.column(ROW).to_numpy().astype(np.int64)
    file = _file_name(events, starts, file_names)
    return SourceRows(file, event_row_numbers[starts], pa.record_batch(columns), event_row_numbers)


def _file_name(events: pa.RecordBatch, starts: np.ndarray, file_names: list[str]) -> str:
    """The file of the events, or the first three of several."""
    if len(file_names) == 1:
        return file_names[0]
    numbers = np.unique(events.column(FILE_NUMBER).to_numpy()[starts])
    return ", ".join(file_names[number] for number in numbers[:3])


def _tokens(channels: list[pa.Array]) -> pa.Array:
    """(S,) values, or vectors of fixed size for several channels, with NaN for missing numbers."""
    if len(channels) == 1:
        return channels[0]
    arrays = [pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False) for values in channels]
    return pa.FixedSizeListArray.from_arrays(pa.array(np.stack(arrays, axis=1).reshape(-1)), len(channels))


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _require_constant(groups: pa.Array, starts: np.ndarray, ids: pa.Array) -> None:
    """Raise InputError if the events of a sequence differ in `data.group`."""
    changing = _changing_groups(groups, starts)
    if len(changing):
        raise InputError(
            "data.group",
            f"changes inside the sequence '{ids[int(changing[0])]}'",
            "name a column that is the same in all events of a sequence, or none",
        )


def _constant(labels: pa.Array, starts: np.ndarray) -> pa.Array:
    """(G,) label of each group, null where its events disagree."""
    mask = np.zeros(len(starts), bool)
    mask[_changing_groups(labels, starts)] = True
    labels = labels.take(pa.array(starts)).cast(pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), labels)


def _changing_groups(column: pa.Array, starts: np.ndarray) -> np.ndarray:
    """Ascending positions of the groups that hold more than one value."""
    changed = _differs(column)
    changed[starts[1:] - 1] = False
    return np.unique(np.searchsorted(starts, np.flatnonzero(changed) + 1, side="right") - 1)
