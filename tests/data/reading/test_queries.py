"""A query is one statement that reads what it names, and nothing else."""

import duckdb
import pytest
from support.table_files import simple, write

from seqclf.data.reading.queries import named_paths, readable_paths, subquery
from seqclf.data.reading.reader import SourceReader, count_rows
from seqclf.data.reading.sources import Source, require_files
from seqclf.errors import InputError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with `t.parquet`, `in/a.csv`, `in/b.csv`, and `secret.csv`, which no query names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write(tmp_path / "t.parquet", simple())
    for name in ("in/a.csv", "in/b.csv", "secret.csv"):
        (tmp_path / name).write_text("x,label\n1,a\n2,b\n")
    return tmp_path


def rows(query):
    return count_rows(Source(query, "data.train"))


def state(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WRITES = [
    "FROM 't.parquet'; COPY (SELECT 1) TO 'o.csv'",
    "SELECT 1; SELECT 2",
    "WITH x AS (COPY (SELECT 1) TO 'o.csv') FROM x",
    "WITH x AS (COPY (SELECT 1) TO 't.parquet' (USE_TMP_FILE false)) FROM 't.parquet'",
    "WITH x AS (SELECT 1) INSERT INTO y SELECT * FROM x",
    "FROM query('COPY (SELECT 1) TO ''o.csv''')",
    "SELECT 1) x; COPY (SELECT 1) TO 'o.csv'; SELECT * FROM (SELECT 1",
]


@pytest.mark.parametrize("query", WRITES)
def test_a_query_that_writes_is_refused_and_writes_nothing(here, query):
    before = state(here)
    with pytest.raises(InputError, match=r"^data\.train: "):
        rows(query)
    assert state(here) == before


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO 'o.csv'",
        "ATTACH 'f.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "PRAGMA version",
    ],
)
def test_a_file_of_sql_holds_a_select_and_nothing_else(here, statement):
    (here / "q.sql").write_text(f"{statement};\n")
    before = state(here)
    with pytest.raises(InputError, match=r"q\.sql: is a statement of kind \w+; write one SELECT, which only reads"):
        count_rows(Source("q.sql", "data.train"))
    assert state(here) == before


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_csv('sec' || 'ret.csv')",
        "FROM query('FROM ''secret.csv''')",
        "SELECT * FROM 't.parquet' WHERE EXISTS (FROM read_text('/etc/' || 'hostname'))",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM read_csv('in/a.csv', delim = '*') UNION ALL FROM read_csv(concat('secret', '.csv'))",
    ],
)
def test_a_query_reads_only_what_it_names(here, query):
    with pytest.raises(InputError, match=r"data\.train: reads '.*', which it does not name; write the path"):
        rows(query)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("FROM 't.parquet'", 20),
        ("FROM t.parquet", 20),
        ("FROM 'in/*.csv'", 4),
        ("FROM read_csv(['in/a.csv', './in/../in/b.csv'])", 4),
        ("SELECT regexp_replace(label, '*', '', 'l') FROM 'link.csv'", 2),
        ("WITH t AS (FROM 'in/a.csv') FROM t", 2),
        ("PIVOT 'in/a.csv' ON label IN ('a', 'b') USING count(*)", 2),
        ("SELECT '; -- ' AS x FROM 'in/a.csv' ; -- é\n;", 2),
        (" UNION ALL ".join(["SELECT * FROM 'in/a.csv'"] * 60), 120),
    ],
)
def test_what_a_query_names_is_read(here, query, count):
    (here / "link.csv").symlink_to(here / "in/a.csv")
    assert rows(query) == count


def test_a_pivot_without_its_columns_is_refused(here):
    with pytest.raises(InputError, match=r"data\.train: a PIVOT must list its columns: PIVOT … ON column IN"):
        rows("PIVOT 'in/a.csv' ON label USING count(*)")


@pytest.mark.parametrize("name", ["in/*.csv", "t.parquet", "FROM 't.parquet'"])
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


def test_a_variable_of_the_program_is_no_table(here):
    table = simple()
    with pytest.raises(InputError, match="Table with name table does not exist"):
        rows('SELECT * FROM "table"')
    assert table


def test_files_are_the_tables_and_the_arguments_of_table_functions():
    query = "SELECT regexp_replace(a, '*', '') FROM 'a.csv', read_csv('b.csv', quote = '*', columns = {'c': 'd'})"
    assert named_paths(query) == ("a.csv", "b.csv")
    assert named_paths("SELEC") == named_paths("COPY x TO 'y'") == ()


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1;", "SELECT 1 ;\n-- end\n;", "/* é */ SELECT 1 -- é"])
def test_a_query_in_parentheses_is_the_same_query(text):
    assert duckdb.sql(f"SELECT * FROM ({subquery(text, 'q')}\n)").fetchall() == [(1,)]


@pytest.mark.parametrize("text", ["SELECT 1", "from 't.parquet'", "q.sql", "WITH x AS (SELECT 1) FROM x"])
def test_a_bundle_is_used_on_files_and_never_on_a_query(here, text):
    (here / "q.sql").write_text("SELECT 1")
    with pytest.raises(InputError, match=r"input=.*: is SQL, which only training reads; run it in DuckDB"):
        require_files(Source(text, "input"))
    require_files(Source("t.parquet", "input"))


COMPUTED = "read_csv('sec' || 'ret.csv')"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT x FROM {COMPUTED} UNION ALL SELECT name FROM which_secret('s3://x', 's3')",
        f'WITH "s3://x" AS (SELECT 1 AS one) SELECT x FROM {COMPUTED}, "s3://x"',
        f"SELECT x FROM {COMPUTED} WHERE x <> 's3://x'",
        f"SELECT x FROM {COMPUTED} UNION ALL SELECT x FROM read_csv('in/a.csv', nullstr = 's3://x')",
        f"SELECT x FROM {COMPUTED} UNION ALL SELECT x FROM 'unknown://x'",
        f"SELECT x FROM {COMPUTED} UNION ALL SELECT x FROM 's3://bucket/x.parquet'",
        "SELECT x FROM read_csv(['in/a.csv', 'sec' || 'ret.csv']) UNION ALL SELECT x FROM 's3://bucket/x.parquet'",
        "FROM query('FROM ''sec' || 'ret.csv''') UNION ALL SELECT x FROM read_parquet('s3://bucket/x.parquet')",
    ],
)
def test_no_text_that_looks_like_a_url_opens_files_that_the_query_does_not_name(here, query):
    with pytest.raises(InputError) as caught:
        rows(query)
    assert caught.value.where == "data.train"
    assert "one text in quotes" in (caught.value.remedy or "") or "unknown://x" in str(caught.value)


def test_files_that_are_written_out_may_be_read_beside_a_store():
    query = "SELECT x FROM read_csv(['in/a.csv', 'in/b.csv'], delim = ',') UNION ALL SELECT x FROM 's3://b/x.parquet'"
    assert readable_paths(query, "data.train") == ["in/a.csv", "in/b.csv", "s3://b/x.parquet"]
