"""Objects of a store with the interface of S3, fetched into the cache and read like files."""

import os
import time
from threading import Event

import pytest

pytest.importorskip("moto")

from support.object_store import SECRET, local_store

from seqclf.bundle.outputs import check_output
from seqclf.data.reading.object_store import MIRROR, fetch, is_object_url, store_object
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source, fetched, source_state
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError


@pytest.fixture(scope="module")
def server():
    with local_store() as store:
        yield store


@pytest.fixture
def store(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for key in server.list_keys():
        server.client.delete_object(Bucket="bucket", Key=key)
    return server


def values(url, cache, column="label"):
    with SourceReader(fetched(Source(url, "data.train"), cache)) as reader:
        return reader.select({column: column}).column(column).to_pylist()


def csv(*labels):
    return ("tokens,label\n" + "".join(f"1 2 3,{label}\n" for label in labels)).encode()


def test_a_glob_reads_the_objects_that_match_in_their_order(store, tmp_path):
    for key in ("in/2.csv", "in/1.csv", "in/deep/3.csv", "in/note.txt"):
        store.put(key, csv(key))
    assert values("s3://bucket/in/*.csv", tmp_path) == ["in/1.csv", "in/2.csv"]
    assert values("s3://bucket/in/*/*.csv", tmp_path) == ["in/deep/3.csv"]
    assert values("s3://bucket/in/[2-9].csv", tmp_path) == ["in/2.csv"]


def test_folders_named_by_a_value_become_a_column(store, tmp_path):
    for year in (2025, 2026):
        store.put(f"in/year={year}/t.csv", csv("a"))
    assert values("s3://bucket/in/year=*/*.csv", tmp_path, "year") == [2025, 2026]


def test_objects_are_fetched_once_and_again_when_they_change(store, tmp_path):
    url = store.put("in/1.csv", csv("a"))
    mirrored = fetch(url, "data.train", tmp_path)
    digest, inode = source_state(fetched(Source(url, "data.train"), tmp_path)), mirrored.stat().st_ino
    assert fetch(url, "input", tmp_path) == mirrored and mirrored.stat().st_ino == inode
    store.put("in/1.csv", csv("a", "b"))
    assert values(url, tmp_path) == ["a", "b"]
    assert source_state(fetched(Source(url, "data.train"), tmp_path)) != digest
    assert mirrored.exists(), "another process may read it"
    os.utime(mirrored.parents[3], (0, 0))
    store.put("in/1.csv", csv("a", "b", "c"))
    assert len(values(url, tmp_path)) == 3 and not mirrored.exists()
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"")):
        damage(fetch(url, "data.train", tmp_path))
        assert len(values(url, tmp_path)) == 3


def test_an_object_that_was_deleted_is_no_longer_read(store, tmp_path):
    store.put("in/1.csv", csv("a"))
    store.put("in/2.csv", csv("b"))
    assert values("s3://bucket/in/*.csv", tmp_path) == ["a", "b"]
    store.client.delete_object(Bucket="bucket", Key="in/1.csv")
    assert values("s3://bucket/in/*.csv", tmp_path) == ["b"]
    with pytest.raises(InputError):
        values("s3://bucket/in/1.csv", tmp_path)


def test_errors_and_refusals_name_the_url(store, tmp_path):
    store.put("in/2.csv", csv("b") + b"1,2,3,4,5\n")
    source = fetched(Source("s3://bucket/in/2.csv", "data.train"), tmp_path)
    with pytest.raises(InputError) as raised, SourceReader(source) as reader:
        reader.select({"label": "label"})
    assert str(raised.value).startswith("s3://bucket/in/2.csv: line 3")
    assert MIRROR not in str(raised.value)
    store.put("in/2.csv", csv("b"))
    store.put("in/1.csv", csv("a"))
    with SourceReader(fetched(Source("s3://bucket/in/*.csv", "data.train"), tmp_path)) as reader:
        files = [name for rows in reader.read(Schema((), "label")) for name in rows.files.to_pylist()]
    assert files == ["s3://bucket/in/1.csv", "s3://bucket/in/2.csv"]


@pytest.mark.parametrize("url", ["s3://bucket/none.csv", "s3://missing-bucket/t.csv", "s3://bucket/none/*.csv"])
def test_what_is_not_there_is_one_line(store, tmp_path, url):
    with pytest.raises(InputError) as raised:
        fetch(url, "data.train", tmp_path)
    assert raised.value.where == f"data.train={url}"


def test_an_unreachable_store_is_one_line_within_seconds(store, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    started = time.monotonic()
    with pytest.raises(InputError) as raised:
        fetch("s3://bucket/t.csv", "data.train", tmp_path)
    assert time.monotonic() - started < 10
    assert "AWS_ENDPOINT_URL" in raised.value.remedy
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("url", ["s3://user:word@bucket/t.csv", "s3://bucket/t.csv?secret_key=word"])
def test_credentials_in_a_url_are_refused_and_not_repeated(tmp_path, url):
    with pytest.raises(InputError) as raised:
        fetch(url, "data.train", tmp_path)
    assert "word" not in f"{raised.value}".replace("password", "")
    assert raised.value.where == "data.train"


def test_a_file_is_stored_whole(store, tmp_path):
    file = tmp_path / "scores.csv"
    file.write_bytes(os.urandom(6 * 2**20))  # more than a part of an upload
    store_object(file, "s3://bucket/out/scores.csv", "output")
    assert store.get("out/scores.csv") == file.read_bytes()
    with pytest.raises(InputError):
        store_object(file, "s3://missing-bucket/scores.csv", "output")


@pytest.mark.parametrize(
    ("url", "names"),
    [("https://host/t.csv", "curl"), ("abfs://datasets/t.csv", "s3"), ("s3://b/../t.csv", "s3"), ("s3://b/**/t", "s3")],
)
def test_other_urls_are_one_line(tmp_path, url, names):
    with pytest.raises(InputError) as raised:
        fetch(url, "data.train", tmp_path)
    assert raised.value.where == f"data.train={url}" and names in raised.value.remedy
    with pytest.raises(InputError):
        check_output(url)


def test_no_object_is_copied_out_of_the_mirror(store, tmp_path):
    store.put("in/1.csv", csv("a"))
    store.put("in/../../../../evil.csv", csv("a"))
    fetch("s3://bucket/in/", "data.train", tmp_path)
    assert [path.name for path in tmp_path.rglob("*.csv")] == ["1.csv"]


@pytest.mark.parametrize("url", ["s3://bucket/in/", "s3://bucket/in/*.csv", "s3://bucket/in/1.csv"])
@pytest.mark.parametrize("error", [True, False])
def test_a_partial_copy_is_not_readable(store, tmp_path, monkeypatch, url, error):
    """The copy breaks off, or an object changes between the listing and the copy."""
    from pyarrow import fs

    store.put("in/1.csv", csv("a"))

    def broken(source, target, *stores):
        if not error:
            store.put("in/1.csv", csv("a", "b"))
        copy_files(source, target, *stores)
        if error:
            raise OSError("connection lost")

    problem = "connection lost" if error else f"{url}: changed"
    with monkeypatch.context() as patch, pytest.raises(InputError) as raised:
        copy_files = fs.copy_files
        patch.setattr(fs, "copy_files", broken)
        fetch(url, "data.train", tmp_path)
    assert problem in str(raised.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    fetch(url, "data.train", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["1.csv"]


def test_an_error_does_not_wait_for_running_copies(store, tmp_path, monkeypatch):
    going_on, started = Event(), time.monotonic()
    monkeypatch.setattr("pyarrow.fs.copy_files", lambda name, *_: going_on.wait(20) if "2.csv" in name else 1 / 0)
    store.put("in/1.csv", csv("a"))
    store.put("in/2.csv", csv("b"))
    with pytest.raises(ZeroDivisionError):
        fetch("s3://bucket/in/", "data.train", tmp_path)
    going_on.set()
    assert time.monotonic() - started < 15


def test_an_object_is_no_file_of_the_web():
    assert not is_object_url("https://example.org/t.csv")
    assert fetched(Source("SELECT * FROM 's3://bucket/t.csv'", "data.train")).mirror is None
