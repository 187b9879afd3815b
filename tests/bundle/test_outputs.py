"""Outputs of a prediction: files and folders of parts, here and in an object store."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("moto")

from support.object_store import local_store

from seqclf.bundle import outputs
from seqclf.bundle.outputs import check_output, open_output
from seqclf.errors import InputError

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
