"""A query is one SELECT over the table `input`, and the connection that runs it reads the files of its source alone."""

import duckdb
import pytest
from support.table_files import simple, write

from seqclf.data.reading.queries import load_query
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError


def rows_of(source):
    """The number of rows of a source."""
    with SourceReader(source) as reader:
        return reader.count_rows()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with `t.parquet`, `in/a.csv` and `in/b.csv`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write(tmp_path / "t.parquet", simple())
    for name in ("in/a.csv", "in/b.csv"):
        (tmp_path / name).write_text("x,label\n1,a\n2,b\n")
    return tmp_path


@pytest.mark.parametrize(
    "query",
    [
        "FROM input; COPY (SELECT 1) TO 'o.csv'",
        "SELECT 1; SELECT 2",
        "WITH x AS (COPY (SELECT 1) TO 'o.csv') FROM x",
        "WITH x AS (SELECT 1) INSERT INTO y SELECT * FROM x",
        "FROM query('COPY (SELECT 1) TO ''o.csv''')",
        "SELECT 1) x; COPY (SELECT 1) TO 'o.csv'; SELECT * FROM (SELECT 1",
        "COPY (SELECT 1) TO 'o.csv'",
        "ATTACH 'f.db'",
        "SET threads = 1",
        "PRAGMA version",
    ],
)
def test_a_query_that_writes_is_refused_and_writes_nothing(here, query):
    before = sorted(here.rglob("*"))
    with pytest.raises(InputError, match=r"data\.query"):
        rows_of(Source("t.parquet", "data.train", query=load_query(query)))
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("name", ["in/*.csv", "t.parquet"])
def test_a_connection_stays_as_narrow_as_it_was_opened(here, name):
    with SourceReader(Source(name, "data.train")) as reader:
        assert reader.count_rows()
        connection = reader._connection
        for statement in ("SET enable_external_access = true", "SET threads = 2", "COPY (SELECT 1) TO '/tmp/o.csv'"):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)
        for elsewhere in ("/etc/hostname", "/proc/self/environ"):
            with pytest.raises(duckdb.Error):
                connection.execute(f"FROM read_text('{elsewhere}')")


@pytest.mark.parametrize("text", ["SELECT 1", "from 't.parquet'", "q.sql", "WITH x AS (SELECT 1) FROM x"])
def test_sql_in_place_of_a_file_is_one_line(here, text):
    with pytest.raises(InputError, match=r"data\.train=.*: is SQL, not a file; give files, and the SELECT over their"):
        rows_of(Source(text, "data.train"))
