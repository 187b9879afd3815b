"""The option `missing_values` of number fields reads the listed numbers as missing values, from every source."""

import json

import numpy as np
import pyarrow as pa
import pytest
from support.table_files import LABELS, write

from seqclf.bundle.python_rows import PythonRows
from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoders import make_encoder, make_encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.schema import Field

NUMBERS = [[0.5 + row, None, 2.0 * row, None if row % 3 else 7.25] for row in range(20)]
SENTINELS = (-999, 1e30)
MASKED = np.ma.array([1.0, 2.0], mask=[0, 1])
WRITTEN = [[SENTINELS[row % 2] if value is None else value for value in numbers] for row, numbers in enumerate(NUMBERS)]
PLAIN = {"kind": "number", "missing": "last"}
OPTION = {**PLAIN, "missing_values": list(SENTINELS)}


@pytest.mark.parametrize("row", [MASKED, list(MASKED), [MASKED, [3.0, 4.0]]])
def test_values_under_a_mask_are_missing_in_python_rows(row):
    width = np.ndim(row[0]) + 1
    found = make_encoder(Field("x", "number", ("x",), width=width, options={"missing": "mean"})).from_python(row)
    assert found == ([[1.0, None], [3.0, 4.0]] if width > 1 else [1.0, None])


def arrays(dataset):
    """(S, D) encoded tokens of all splits."""
    return {name: np.asarray(split.sequences.fields["x"]) for name, split in dataset.splits.items()}


def assert_same(dataset, expected):
    for name, tokens in arrays(expected).items():
        np.testing.assert_array_equal(arrays(dataset)[name], tokens)
    assert dataset.encoders["x"].state() == expected.encoders["x"].state()
    width = expected.encoders["x"].width
    assert (arrays(expected)["train"][:, width : 2 * width] == 0).any()


@pytest.mark.parametrize("file", ["t.csv", "t.jsonl", "t.parquet", "t.arrow"])
def test_listed_numbers_are_read_like_missing_values(options, tmp_path, file):
    (tmp_path / "a").mkdir()
    read = prepare(options(train=write(tmp_path / file, {"x": WRITTEN, "y": LABELS}), label="y", fields={"x": OPTION}))
    path = write(tmp_path / "a" / file, {"x": NUMBERS, "y": LABELS})
    assert_same(read, prepare(options(train=path, label="y", fields={"x": PLAIN})))
    schema = stored_schema(json.loads(json.dumps(read.schema.to_dict())))
    assert make_encoders(schema.fields)["x"].missing_values == {-999.0, 1e30, float(np.float32(1e30))}


def vectors(rows):
    return [[[value, 1.0] for value in row] for row in rows]


@pytest.mark.parametrize("file", ["t.csv", "t.jsonl", "t.parquet"])
def test_channels_of_vectors_miss_one_by_one(options, tmp_path, file):
    (tmp_path / "a").mkdir()
    path = write(tmp_path / file, {"x": vectors(WRITTEN), "y": LABELS})
    read = prepare(options(train=path, label="y", fields={"x": OPTION}))
    path = write(tmp_path / "a" / file, {"x": vectors(NUMBERS), "y": LABELS})
    assert_same(read, prepare(options(train=path, label="y", fields={"x": PLAIN})))


@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
def test_values_of_events_and_of_several_columns_are_read_alike(options, tmp_path, file):
    (tmp_path / "a").mkdir()
    events = {"key": [row for row in range(20) for _ in range(4)], "y": [label for label in LABELS for _ in range(4)]}
    both = {"kind": "number", "columns": ["x", "z"]}
    made = []
    for folder, rows, option in ((tmp_path, WRITTEN, OPTION), (tmp_path / "a", NUMBERS, PLAIN)):
        flat = [value for row in rows for value in row]
        path = write(folder / file, {**events, "x": flat, "z": [1.0, 2.0] * 40})
        made.append(prepare(options(train=path, label="y", group_by="key", fields={"x": {**option, **both}})))
    assert_same(*made)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_memory_are_read_like_files(options, tmp_path, dtype):
    path = write(tmp_path / "t.parquet", {"x": WRITTEN, "y": LABELS})
    dataset = prepare(options(train=path, label="y", fields={"x": OPTION}))
    rows = PythonRows(dataset.schema, dataset.encoders)
    columns, errors = rows.to_columns([np.array(row, dtype) for row in WRITTEN])
    assert errors == [None] * 20 and columns.column("x").to_pylist() == NUMBERS


def test_files_of_float32_hold_the_listed_decimals(options, tmp_path):
    rows = [[-99.9 if value is None else value for value in row] for row in NUMBERS]
    path = write(tmp_path / "t.parquet", {"x": pa.array(rows, pa.list_(pa.float32())), "y": LABELS})
    dataset = prepare(options(train=path, label="y", fields={"x": {**PLAIN, "missing_values": [-99.9]}}))
    assert dataset.encoders["x"].scales.mean[0, 0] > 0
