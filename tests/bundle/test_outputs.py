"""Outputs of a prediction: files and folders of parts, here and in an object store."""

import datetime
import io
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import local_store

from seqclf.bundle import outputs
from seqclf.bundle.outputs import check_output, check_output_path, open_output, open_writer
from seqclf.errors import InputError

pytest.importorskip("moto")


SCHEMA = pa.schema({"id": pa.int64()})
NAMES = ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]


@pytest.fixture(scope="module")
def server():
    with local_store() as store:
        yield store


@pytest.fixture
def store(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for key in server.list_keys():
        server.client.delete_object(Bucket="bucket", Key=key)
    return server


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(outputs, "PART_ROWS", 4)


def write(output, fails=False):
    with open_output(output, SCHEMA) as writer:
        for start in range(0, 10, 2):
            writer.write_batch(pa.record_batch({"id": pa.array([start, start + 1])}))
        if fails:
            raise RuntimeError("half way")


def ids(*files):
    return [row for file in files for row in pq.read_table(file).column("id").to_pylist()]


def test_a_folder_gets_parts_in_the_order_of_the_rows(tmp_path):
    write(f"{tmp_path}/scores/")
    assert sorted(path.name for path in tmp_path.glob("scores/*")) == NAMES
    assert ids(*(tmp_path / "scores" / name for name in NAMES)) == list(range(10))
    assert [path.name for path in tmp_path.iterdir()] == ["scores"]


def test_a_folder_appears_only_when_it_is_complete(tmp_path):
    with pytest.raises(RuntimeError, match="half way"):
        write(f"{tmp_path}/scores/", fails=True)
    assert list(tmp_path.iterdir()) == []


def test_parts_do_not_mix_with_other_files(tmp_path, store):
    (tmp_path / "scores").mkdir()
    check_output(f"{tmp_path}/scores/")
    (tmp_path / "scores/old.parquet").touch()
    url = store.put("scores/old.parquet", b"").rpartition("/")[0]
    for output in (f"{tmp_path}/scores/", f"{url}/"):
        with pytest.raises(InputError) as raised:
            check_output(output)
        assert raised.value.where == f"output={output}"


def test_a_prefix_of_a_store_gets_parts(store):
    write("s3://bucket/day/scores/")
    assert store.list_keys("day/") == [f"day/scores/{name}" for name in NAMES]
    assert ids(*(io.BytesIO(store.get(f"day/scores/{name}")) for name in NAMES)) == list(range(10))


@pytest.mark.parametrize("output", ["s3://bucket/day/scores/", "s3://bucket/day/scores.parquet"])
def test_a_store_keeps_nothing_of_a_prediction_that_fails(store, output):
    with pytest.raises(RuntimeError, match="half way"):
        write(output, fails=True)
    assert [key for key in store.list_keys() if not key.endswith("/")] == []  # Arrow marks folders by empty objects


def test_an_object_is_written(store):
    write("s3://bucket/day/scores.parquet")
    assert ids(io.BytesIO(store.get("day/scores.parquet"))) == list(range(10))


def test_the_kind_of_an_object_is_checked_before_the_work():
    with pytest.raises(InputError):
        check_output("s3://bucket/scores.xlsx")


TABLE = pa.table({"id": [1, None, 3], "prediction": ["é", 'say "hi", you', None], "probability": [0.1, 1 / 3, None]})


def write_table(path, table):
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
    write_table(path, TABLE)
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
            write_table(path, pa.table({"id": values}))
            # JSON has no bytes, so they are written as Python writes them.
            expected = ["b'\\xff'"] if path.name == "bytes.jsonl" else values
            assert read_back(path).column("id").to_pylist() == expected, path.name


def test_a_type_that_the_format_does_not_support_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"output=.*o.csv: cannot be written: .*list"):
        write_table(tmp_path / "o.csv", pa.table({"id": [[1, 2]]}))
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
