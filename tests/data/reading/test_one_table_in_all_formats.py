"""One table, written in every format, has the same fields, the same encoded arrays and the same refused rows."""

import csv
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from seqclf.api.fit import load_data

ROWS, TOKENS = 40, 4
TYPELESS = ("csv", "tsv")
FORMATS = ("parquet", *TYPELESS, "jsonl", "arrow", "stream", "table", "pandas", "polars")


def _columns():
    random = np.random.default_rng(0)
    count = ROWS * TOKENS
    whole = random.integers(0, 30, count).tolist()
    numbers = random.normal(size=count).round(3).tolist()
    words = [["red", "blue", "green"][value % 3] for value in whole]
    start = datetime(2024, 1, 1)

    def gaps(values, gap=None):
        return [gap if row % 9 == 4 else value for row, value in enumerate(values)]

    return {
        "integers": pa.array(whole),
        "negative": pa.array([value - 5 for value in whole]),
        "with null": pa.array(gaps(whole)),
        "floats": pa.array(numbers),
        "floats with null": pa.array(gaps(numbers)),
        "floats with NaN": pa.array(gaps(numbers, float("nan"))),
        "half floats": pa.array(np.array(whole, np.float16) / np.float16(4)),
        "decimals": pa.array([Decimal(value).scaleb(-2) for value in whole]),
        "wide decimals": pa.array([Decimal(value).scaleb(-2) for value in whole], pa.decimal256(50, 2)),
        "booleans": pa.array([value > 9 for value in whole]),
        "texts": pa.array(words),
        "texts with null": pa.array(gaps(words)),
        "empty texts": pa.array(gaps(words, "")),
        "digits": pa.array([["007", "7", "012"][value % 3] for value in whole]),
        "signs": pa.array([["+7", "7", "1_1", "11"][value % 4] for value in whole]),
        "bytes": pa.array([["dé".encode(), b"b"][value % 2] for value in whole]),
        "dates": pa.array([date(2024, 1, 1) + timedelta(days=row * row % 70 + row) for row in range(count)]),
        "times": pa.array([start + timedelta(seconds=977 * row) for row in range(count)]),
        "zoned times": pa.array([(start + timedelta(seconds=977 * row)).replace(tzinfo=UTC) for row in range(count)]),
        "durations": pa.array([timedelta(milliseconds=100 * value + 50) for value in whole]),
        "categories": pa.array(words).dictionary_encode(),
        "uuids": pa.array([str(uuid.UUID(int=value % 5)) for value in whole]),
    }


COLUMNS = _columns()


def written(value):
    """A value as programs write it to a text file or to JSON."""
    if isinstance(value, list):
        return list(map(written, value))
    if value != value:  # NaN
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    return float(value) if isinstance(value, (Decimal, np.floating)) else value


def cell(value):
    if isinstance(value, list):
        return f"[{', '.join(map(cell, value))}]"
    return "" if value is None else str(value)


def saved(table, folder, kind):
    path = folder / f"t.{'arrow' if kind == 'stream' else kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        feather.write_feather(table, path, compression="uncompressed")
    elif kind == "stream":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    elif kind == "table":
        return table
    elif kind == "pandas":
        return table.to_pandas(types_mapper=pd.ArrowDtype)
    elif kind == "polars":
        return pl.from_arrow(table)
    rows = [{name: written(value) for name, value in row.items()} for row in table.to_pylist()]
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif kind in TYPELESS:
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            lines.writerows([table.column_names, *([cell(value) for value in row.values()] for row in rows)])
    return str(path)


def read(table, folder, kind, overrides):
    """Fields and encoded arrays of each column of a table in a format."""
    dataset = load_data(saved(table, folder, kind), label="label", overrides=["data.id=card", *overrides])
    assert {report.refused for report in dataset.report.values()} == {0}, kind
    fields = {field.column: (field.kind, field.values, field.options.get("missing")) for field in dataset.schema.fields}
    names = {field.column: field.name for field in dataset.schema.fields}
    arrays = {
        (column, split): rows.sequences.fields[name].tolist()
        for split, rows in dataset.splits.items()
        for column, name in names.items()
    }
    return fields, arrays


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Fields and arrays of the Parquet file, of events and of lists."""
    folder = tmp_path_factory.mktemp("reference")
    return {nested: read(_table(nested), folder, "parquet", _overrides(nested)) for nested in (False, True)}


def _table(nested, kind=""):
    columns = {name: values for name, values in COLUMNS.items() if (name, kind) != ("wide decimals", "polars")}
    labels, keys = [["a", "b"][row % 2] for row in range(ROWS)], [f"c{row:02}" for row in range(ROWS)]
    offsets = pa.array(np.arange(0, ROWS * TOKENS + 1, TOKENS, dtype=np.int32))
    if nested:
        lists = {name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()}
        return pa.table({"card": keys, **lists, "label": labels})
    return pa.table({"card": np.repeat(keys, TOKENS), **columns, "label": np.repeat(labels, TOKENS)})


def _overrides(nested):
    return [] if nested else ["data.group_by=card", "data.rows=events"]


@pytest.mark.parametrize("nested", [False, True], ids=["events", "lists"])
@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "parquet"])
def test_formats_agree(tmp_path, reference, kind, nested):
    fields, arrays = read(_table(nested, kind), tmp_path, kind, _overrides(nested))
    expected_fields, expected = reference[nested]
    assert fields == {name: expected_fields[name] for name in fields} and len(fields) >= len(COLUMNS) - 1
    for place, encoded in arrays.items():
        np.testing.assert_allclose(encoded, expected[place], rtol=1e-5, atol=1e-5, err_msg=str(place))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in TYPELESS])  # text files have no objects
def test_lists_of_objects_are_events_inside_of_a_row(tmp_path, kind):
    random = np.random.default_rng(0)
    rows = [
        {
            "events": [
                {"t": at + float(random.random()), "type": "abc"[random.integers(3)], "amount": float(random.normal())}
                for at in range(3 + row % 3)
            ],
            "label": "xy"[row % 2],
        }
        for row in range(60)
    ]
    rows[3]["events"][1].pop("amount")
    overrides = ["data.fields={t: number, type: category, amount: {kind: number, missing: last}}"]
    dataset = load_data(saved(pa.Table.from_pylist(rows), tmp_path, kind), label="label", overrides=overrides)
    train = dataset.splits["train"]
    assert dataset.report["train"].refused == 0 and {"t", "type", "amount"} <= train.sequences.fields.keys()
    sizes = {
        len(rows[int(number) - 1]["events"]) - length
        for number, length in zip(train.row_numbers, train.sequences.lengths, strict=True)
    }
    assert sizes == {0}
    inferred = load_data(saved(pa.Table.from_pylist(rows), tmp_path, kind), label="label")
    assert {field.name: field.kind for field in inferred.schema.fields} == {
        "t": "number",
        "type": "category",
        "amount": "number",
    }


def test_a_column_that_nothing_reads_never_stops_a_run(tmp_path):
    union = pa.UnionArray.from_sparse(pa.array([0] * 60, pa.int8()), [pa.array(range(60)), pa.array(["a"] * 60)])
    others = {
        "union": union,
        "half": pa.array(np.zeros(60, np.float16)),
        "wide": pa.array([Decimal(1)] * 60, pa.decimal256(60, 0)),
    }
    table = pa.table({"x": [[1, 2, 3]] * 60, "label": ["a", "b"] * 30, **others})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    assert len(load_data(str(tmp_path / "t.arrow"), label="label").classes) == 2


@pytest.mark.parametrize("name", ["token", "entry"])
def test_a_column_may_be_named_like_a_variable_of_sql(tmp_path, name):
    rows = [
        {name: {"k": "z"}, "events": [{"k": "ab"[(row + at) % 2]} for at in range(3)], "label": "xy"[row % 2]}
        for row in range(60)
    ]
    dataset = load_data(pa.Table.from_pylist(rows), label="label", overrides=["data.fields={k: category}"])
    assert set(dataset.encoders["k"].vocabulary.values.to_pylist()) == {"a", "b"}
