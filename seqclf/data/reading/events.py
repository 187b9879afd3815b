"""Read event tables as sequences. Each event, which is one row of the table, is one token.

DuckDB sorts the events by group within its memory limit, unless they are sorted. They are then cut where the group key
changes, which is ten times faster than SQL that aggregates events into lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.canonical_columns import EVENTS, channel, event_columns, event_order, group, select_list
from seqclf.data.reading.format import describe_columns
from seqclf.data.reading.object_store import url_of
from seqclf.data.reading.relations import Relation
from seqclf.data.schema import casts
from seqclf.data.schema.rows import SourceRows, joined_key
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError
from seqclf.system import progress

READ_EVENTS = 122_880  # events per record batch, as in a DuckDB row group
FILE_NUMBER = "file number"  # name of a column with the position of the event's file in the list of files
MAX_ENUMERATION_VALUES = 65_536  # maximum number of distinct values whose codes fit into two bytes


def read_events(
    connection: duckdb.DuckDBPyConnection,
    rows: Relation,
    column_types: dict[str, str],
    paths: Sequence[Path],
    source_name: str,
    schema: Schema,
    keys: Mapping[str, str],
) -> Iterator[SourceRows]:
    """Read the sequences of an event table, sorted by group key (see `SourceReader.read`).

    The `id` of a sequence is a value of the id column, or else its group key. Events are numbered from 1, in each
    Parquet file, or over all files of another format.
    """
    columns = event_columns(schema, column_types, source_name, keys)
    relation, numbered = rows.sql, rows.numbered_sql
    file_names, file_order = [source_name], [casts.ROW]
    if numbered is None:
        columns[casts.ROW] = "row_number() OVER ()"
    else:
        columns = _with_enumerations(connection, relation, columns)
        relation = numbered
        columns[casts.ROW] = "CAST(file_row_number + 1 AS UINTEGER)"
        if len(paths) > 1:
            file_names = [url_of(str(path)) for path in paths]
            columns[FILE_NUMBER] = "file_index"
            file_order = [FILE_NUMBER, casts.ROW]
    # The table has an alias, because a column in ORDER BY may have the same name as a selected expression.
    query = f"SELECT {select_list(columns)} FROM {relation} AS {EVENTS}"
    order = event_order(schema, column_types)
    group_columns = [casts.key_sql(column, column_types[column]) for column in schema.group_by]
    # DuckDB must read and sort all events before it can return the first event.
    with progress.stage(f"sorting {Path(source_name).name}"):
        # The check reads the table once more, which is fast for Parquet files alone.
        if numbered is None or not _is_sorted(connection, relation, [*group_columns, *order]):
            columns_of_groups = map(group, range(len(schema.group_by)))
            quoted, files = (map(casts.quote_identifier, names) for names in (columns_of_groups, file_order))
            query += f" ORDER BY {', '.join([*quoted, *order, *files])}"
        stream = connection.sql(query).to_arrow_reader(READ_EVENTS)
        first = next(stream, None)
    stream = itertools.chain([] if first is None else [first], stream)
    for events in _whole_groups(stream, len(schema.group_by)):
        yield _sequences(events, schema, file_names)


def _is_sorted(connection: duckdb.DuckDBPyConnection, relation: str, expressions: list[str]) -> bool:
    selected = select_list({f"e{position}": expression for position, expression in enumerate(expressions)})
    last_row: pa.RecordBatch | None = None  # last row of the previous record batch
    stream = connection.sql(f"SELECT {selected} FROM {relation} AS {EVENTS}").to_arrow_reader(READ_EVENTS)
    for record_batch in stream:
        joined = record_batch if last_row is None else pa.concat_batches([last_row, record_batch])
        try:
            if not _ascends(joined.columns):
                return False
        except pa.ArrowNotImplementedError:  # Arrow cannot compare values of this data type
            return False
        last_row = joined.slice(joined.num_rows - 1) if joined.num_rows else None
    return True


def _ascends(columns: list[pa.Array]) -> bool:
    """True if the rows ascend. False with null or NaN, so that DuckDB sorts the rows."""
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


def _with_enumerations(connection: duckdb.DuckDBPyConnection, relation: str, columns: dict[str, str]) -> dict[str, str]:
    """Cast text columns with few distinct values to DuckDB's enumeration type, in Parquet, where finding them is cheap.

    Sorting moves fewer bytes, which halves the time of a sort that spills to disk. Arrow gets a dictionary column.
    """
    kinds = describe_columns(connection, f"(SELECT {select_list(columns)} FROM {relation})")
    result = dict(columns)
    for position, (name, value) in enumerate(columns.items()):
        if kinds[name] == "VARCHAR" and not name.startswith("group "):
            distinct = f"SELECT DISTINCT {value} AS value FROM {relation} LIMIT {MAX_ENUMERATION_VALUES + 1}"
            connection.execute(f"CREATE TEMP TABLE values_{position} AS {distinct}")
            ((count,),) = connection.execute(f"SELECT count(*) FROM values_{position}").fetchall()
            if 0 < count <= MAX_ENUMERATION_VALUES:
                values = f"SELECT value FROM values_{position} WHERE value IS NOT NULL ORDER BY value"
                connection.execute(f"CREATE TYPE enumeration_{position} AS ENUM ({values})")
                result[name] = f"CAST({value} AS enumeration_{position})"
    return result


def _whole_groups(record_batches: Iterable[pa.RecordBatch], key_count: int) -> Iterator[pa.RecordBatch]:
    """Join and cut record batches of sorted events so that no group continues in the next record batch."""
    pending: list[pa.RecordBatch] = []  # events of the last group, which may continue in the next record batch
    for record_batch in record_batches:
        if not record_batch.num_rows:
            continue
        if pending and not _same_group(pending[-1], record_batch, key_count):
            yield pa.concat_batches(pending)
            pending = []
        starts = _group_starts(record_batch, key_count)
        if len(starts) > 1:
            last_start = int(starts[-1])
            yield pa.concat_batches([*pending, record_batch.slice(0, last_start)])
            pending, record_batch = [], record_batch.slice(last_start)
        pending.append(record_batch)
    if pending:
        yield pa.concat_batches(pending)


def _same_group(before: pa.RecordBatch, after: pa.RecordBatch, key_count: int) -> bool:
    names = map(group, range(key_count))
    return all(before.column(name)[before.num_rows - 1].equals(after.column(name)[0]) for name in names)


def _group_starts(events: pa.RecordBatch, key_count: int) -> np.ndarray:
    changes = np.zeros(events.num_rows - 1, bool)
    for position in range(key_count):
        changes |= _differs(events.column(group(position)))
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _differs(column: pa.Array) -> np.ndarray:
    """Return an (N - 1,) mask, True where a value differs from the one before it. Two null values are equal."""
    codes = column.indices if pa.types.is_dictionary(column.type) else column
    before, after = codes.slice(0, len(codes) - 1), codes.slice(1)
    changed = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        changed |= nulls[1:] != nulls[:-1]
    return changed


def _sequences(events: pa.RecordBatch, schema: Schema, file_names: list[str]) -> SourceRows:
    """Build sequences with canonical columns from sorted events. No group may be incomplete."""
    starts = _group_starts(events, len(schema.group_by))
    offsets = pa.array(np.append(starts, events.num_rows), pa.int32())
    first_events = pa.array(starts)
    columns: dict[str, pa.Array] = {}
    if schema.label is not None:
        columns[casts.LABEL] = _constant(events.column(casts.LABEL), starts)
    keys = [events.column(group(position)).take(first_events) for position in range(len(schema.group_by))]
    has_id = schema.id is not None
    columns[casts.ID] = _decoded(events.column(casts.ID).take(first_events)) if has_id else joined_key(keys)
    for field in schema.fields:
        channels = [events.column(channel(field.name, position)) for position in range(len(field.columns))]
        tokens = _tokens(channels)
        columns[field.name] = _distinct(tokens, starts) if field.static else pa.ListArray.from_arrays(offsets, tokens)
    if casts.UNORDERED in events.schema.names:
        columns[casts.UNORDERED] = pa.ListArray.from_arrays(offsets, _decoded(events.column(casts.UNORDERED)))
    for name in (casts.TIME, casts.GROUP, casts.GROUP_NAME, casts.WEIGHT, casts.COST):
        if name in events.schema.names:
            columns[name] = _decoded(events.column(name).take(first_events))
    for name, option in ((casts.GROUP, "group"), (casts.WEIGHT, "weight"), (casts.COST, "cost")):
        if name in columns:
            _require_constant(f"data.{option}", events.column(name), starts, columns[casts.ID])
    if casts.TIME in columns:  # a sequence has a last time, because its events may have different times
        times = events.column(casts.TIME).to_numpy(zero_copy_only=False)
        columns[casts.TIME_END] = pa.array(np.fmax.reduceat(times, starts))
    event_row_numbers = events.column(casts.ROW).to_numpy().astype(np.int64)
    file = _file_name(events, starts, file_names)
    return SourceRows(file, event_row_numbers[starts], pa.record_batch(columns), event_row_numbers)


def _file_name(events: pa.RecordBatch, starts: np.ndarray, file_names: list[str]) -> str:
    """Of several files, the first three are named."""
    if len(file_names) == 1:
        return file_names[0]
    numbers = np.unique(events.column(FILE_NUMBER).to_numpy()[starts])
    return ", ".join(file_names[number] for number in numbers[:3])


def _tokens(channels: list[pa.Array]) -> pa.Array:
    """A token is a value if the field has one channel, otherwise a vector with NaN for missing values."""
    if len(channels) == 1:
        return channels[0]
    arrays = [pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False) for values in channels]
    return pa.FixedSizeListArray.from_arrays(pa.array(np.stack(arrays, axis=1).reshape(-1)), len(channels))


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _require_constant(option: str, values: pa.Array, starts: np.ndarray, ids: pa.Array) -> None:
    if len(changing := _changing_groups(values, starts)):
        remedy = "name a column that is the same in all events of a sequence, or none"
        raise InputError(option, f"changes inside the sequence '{ids[int(changing[0])]}'", remedy)


def _constant(labels: pa.Array, starts: np.ndarray) -> pa.Array:
    """Return the (G,) label of each group, or null if the events of a group have different labels."""
    mask = np.zeros(len(starts), bool)
    mask[_changing_groups(labels, starts)] = True
    labels = labels.take(pa.array(starts)).cast(pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), labels)


def _distinct(column: pa.Array, starts: np.ndarray) -> pa.ListArray:
    """Return the distinct values of each group in order. A missing value counts only if a group has no other."""
    column = _decoded(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    group_of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(column))))
    known = column.is_valid().to_numpy(zero_copy_only=False)
    known[starts[np.bincount(group_of[known], minlength=len(starts)) == 0]] = True
    values, group_of = column.filter(pa.array(known)), group_of[known]
    changes = np.concatenate([[True], _differs(values) | (np.diff(group_of) > 0)])
    values, group_of = values.filter(pa.array(changes)), group_of[changes]
    ends = np.cumsum(np.bincount(group_of, minlength=len(starts)))
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), values)


def _changing_groups(column: pa.Array, starts: np.ndarray) -> np.ndarray:
    changed = _differs(column)
    changed[starts[1:] - 1] = False
    return np.unique(np.searchsorted(starts, np.flatnonzero(changed) + 1, side="right") - 1)
