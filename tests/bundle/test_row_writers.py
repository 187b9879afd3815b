"""Writers of predictions: each file is complete or not written."""

import datetime
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from seqclf.bundle.outputs import check_output
from seqclf.bundle.row_writers import check_output_path, open_writer
from seqclf.errors import InputError

TABLE = pa.table({"id": [1, None, 3], "prediction": ["é", 'say "hi", you', None], "probability": [0.1, 1 / 3, None]})


def write(path, table):
    with open_writer(path, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)


def read_back(path):
    if path.suffix in (".arrow", ".feather"):
        return pa.ipc.open_file(path).read_all()
    return duckdb.sql(f"FROM '{path}'").to_arrow_table()


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl", "o.ndjson", "o.arrow", "o.feather", "O.CSV"])
def test_a_written_table_is_read_back_unchanged(tmp_path, name):
    path = tmp_path / "new" / "folder" / name
    write(path, TABLE)
    assert read_back(path).to_pylist() == TABLE.to_pylist()
    assert [entry.name for entry in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl", "o.arrow"])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), open_writer(path, TABLE.schema) as writer:
        writer.write_batch(TABLE.to_batches()[0])
        raise RuntimeError("half way")
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == [name]


def test_ids_of_nested_and_binary_types_are_written(tmp_path):
    ids_by_type = {
        "list": [[1, 2]],
        "bytes": [b"\xff"],
        "struct": [{"a": 1}],
        "timestamp": [datetime.datetime(2020, 1, 1)],
    }
    for type_name, values in ids_by_type.items():
        for ending in ("parquet", "arrow", "jsonl"):
            path = tmp_path / f"{type_name}.{ending}"
            write(path, pa.table({"id": values}))
            # JSON has no bytes, so they are written as Python writes them.
            expected = ["b'\\xff'"] if path.name == "bytes.jsonl" else values
            assert read_back(path).column("id").to_pylist() == expected, path.name


def test_a_type_that_the_format_does_not_support_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"output=.*o.csv: cannot be written: .*list"):
        write(tmp_path / "o.csv", pa.table({"id": [[1, 2]]}))
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_refused_beforehand(tmp_path):
    with pytest.raises(InputError, match=r"output=o.xlsx: unknown kind of file; end it in .parquet, .csv, .jsonl or"):
        check_output("o.xlsx")
    (tmp_path / "o.csv").mkdir()
    with pytest.raises(InputError, match=r"o.csv: is not a regular file; name another"):
        check_output(f"{tmp_path}/o.csv")
    os.mkfifo(tmp_path / "fifo.csv")
    for special in (tmp_path / "fifo.csv", Path("/dev/null")):
        with pytest.raises(InputError) as caught:
            check_output_path(special)
        assert caught.value.where == f"output={special}"
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"output=.*file/o.csv: .*file is not a folder; name another"):
        check_output(f"{tmp_path}/file/o.csv")
