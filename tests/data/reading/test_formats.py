"""The same rows make the same dataset, whatever file they come in."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import LABELS, TOKENS, simple, write, write_arrow

from seqclf.data.prepare_data import prepare
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field, Schema

FILES = ("t.csv", "t.jsonl", "t.jsonl.gz", "t.parquet", "t.arrow")


def digest(options, folder, path, **overrides):
    return prepare(options(train=path, label="label", cache_dir=folder / "cache", **overrides)).digest


@pytest.mark.parametrize("by", ["random", "distinct", "group", "time"])
def test_splits_do_not_depend_on_the_format(options, tmp_path, by):
    table = simple(when=[row * 37 % 20 for row in range(20)])
    split = {"by": by, "column": "when" if by == "time" else None, "validation": 0.3}
    keys = {"split": split, "group": "when" if by == "group" else None}
    assert len({digest(options, tmp_path, write(tmp_path / file, table), **keys) for file in FILES}) == 1


def test_row_groups_and_batches_of_a_file_do_not_matter(options, tmp_path):
    random = np.random.default_rng(0)
    rows = [random.normal(size=1 + row % 3).tolist() for row in range(9000)]
    table = pa.table({"x": rows, "label": [f"c{row % 3}" for row in range(9000)]})
    pq.write_table(table, tmp_path / "whole.parquet")
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=700)
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1234)
    paths = [tmp_path / name for name in ("whole.parquet", "groups.parquet", "t.arrow")]
    assert len({digest(options, tmp_path, path) for path in paths}) == 1


def test_parts_in_a_glob_give_the_same_digest_as_one_file(options, tmp_path):
    reference = write(tmp_path / "t.csv", simple())
    for part, rows in enumerate([slice(0, 3), slice(3, 11), slice(11, 20)]):
        for kind in ("csv", "arrow", "parquet", "jsonl"):
            write(tmp_path / f"part{part}.{kind}", {"tokens": TOKENS[rows], "label": LABELS[rows]})
    expected = digest(options, tmp_path, reference)
    for kind in ("csv", "arrow", "parquet", "jsonl"):
        assert digest(options, tmp_path, tmp_path / f"part*.{kind}") == expected


VECTORS = pa.array(np.arange(120.0))
TYPES = {
    "list": pa.array([[[float(6 * row + 3 * i + j) for j in range(3)] for i in range(2)] for row in range(20)]),
    "fixed inside": pa.ListArray.from_arrays(
        pa.array(np.arange(0, 41, 2), pa.int32()), pa.FixedSizeListArray.from_arrays(VECTORS, 3)
    ),
    "fixed twice": pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(VECTORS, 3), 2),
}
TYPES["large"] = TYPES["list"].cast(pa.large_list(pa.large_list(pa.float32())))
WORD_LISTS = [["red", "blue"], ["blue"]] * 10
TEXT_TYPES = {
    "list": pa.array(WORD_LISTS),
    "large": pa.array(WORD_LISTS, pa.large_list(pa.large_string())),
    "dictionary": pa.array(WORD_LISTS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "view": pa.array(WORD_LISTS, pa.list_(pa.string_view())),
}


@pytest.mark.parametrize("types", [TYPES, TEXT_TYPES])
def test_every_arrow_list_type_gives_the_same_digest(options, tmp_path, types):
    digests = set()
    for column in types.values():
        label = pa.array(LABELS).dictionary_encode()
        digests.add(
            digest(options, tmp_path, write_arrow(tmp_path / "t.arrow", pa.table({"x": column, "label": label})))
        )
        path = write(tmp_path / "t.parquet", {"x": column, "label": LABELS})
        digests.add(digest(options, tmp_path, path))
    assert len(digests) == 1


def test_rows_of_arrow_streams_are_numbered_within_their_files(tmp_path):
    """DuckDB does not read the stream format of Arrow."""
    for part in range(3):
        table = pa.table({"x": [[10 * part + row] for row in range(4 + part)]})
        with pa.ipc.new_stream(tmp_path / f"part{part}.arrow", table.schema) as writer:
            writer.write_table(table)
    schema = Schema((Field("x", "category", ("x",), "integer"),))
    with SourceReader(Source(str(tmp_path / "part*"), "data.train")) as reader:
        (rows,) = reader.read(schema)
    tokens = rows.columns.column("x").to_pylist()
    assert [(name, rows.file_of(place), rows.row_numbers[place]) for place, (name,) in enumerate(tokens)] == [
        (10 * part + row, str(tmp_path / f"part{part}.arrow"), row + 1) for part in range(3) for row in range(4 + part)
    ]
