"""`data.query`: one SELECT over `input`, for training files and for every file that is predicted."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import simple, write

from seqclf.data.prepare_data import prepare
from seqclf.data.reading import relations as input_query
from seqclf.data.reading.queries import in_fixed_order, load_query, passes_through
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

COLUMNS = simple(amount=[row / 2 for row in range(20)])


def selected(path, query, **options):
    with SourceReader(Source(str(path), "data.train", query=load_query(query)), **options) as reader:
        return reader.select({name: name for name in reader.column_types}).to_pydict()


def test_the_rows_of_the_query_are_those_that_are_read(tmp_path):
    path = write(tmp_path / "t.csv", COLUMNS)
    rows = selected(path, "SELECT label, amount::DOUBLE * 2 AS twice FROM input WHERE label = 'a' -- only these\n;")
    assert rows == {"label": ["a"] * 10, "twice": [float(row) for row in range(0, 20, 2)]}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.arrow"])
def test_a_dataset_by_query_equals_that_of_a_file_with_its_result(options, tmp_path, name):
    plain = prepare(options(train=write(tmp_path / f"plain_{name}", simple()), label="label"))
    renamed = {"words": COLUMNS["tokens"], "truth": COLUMNS["label"], "noise": COLUMNS["amount"]}
    query = "WITH named AS (FROM input) SELECT words AS tokens, truth AS label FROM named"
    queried = prepare(options(train=write(tmp_path / name, renamed), label="label", query=query))
    assert queried.digest == plain.digest
    assert queried.reader["query"] == query


def test_events_are_aggregated_by_a_pivot(tmp_path):
    path = write(tmp_path / "t.parquet", {"card": [1, 1, 2], "shop": ["a", "b", "a"], "amount": [1.0, 2.0, 4.0]})
    rows = selected(path, "PIVOT input ON shop IN ('a', 'b') USING sum(amount) GROUP BY card ORDER BY card")
    assert rows == {"card": [1, 2], "a": [1.0, 4.0], "b": [2.0, None]}


def test_several_files_are_one_input(tmp_path):
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, COLUMNS)
    assert selected(tmp_path / "*.csv", "SELECT count(*) AS rows FROM input") == {"rows": [40]}


def test_a_changed_query_prepares_the_data_again(options, tmp_path):
    path = write(tmp_path / "t.csv", COLUMNS)
    counts = [
        sum(split.used for split in prepare(options(train=path, label="label", query=query)).report.values())
        for query in ("SELECT * FROM input LIMIT 20", "SELECT * FROM input LIMIT 16")
    ]
    assert counts == [20, 16]


REFUSED = {
    "SELECT * FROM 'other.csv'": "reads 'other.csv'; it can read the table input only",
    "SELECT * FROM read_text('/etc/passwd')": "calls read_text(); it can read the table input only",
    "SELECT * FROM input JOIN elsewhere USING (label)": "reads 'elsewhere'; it can read the table input only",
    "select 1 from": "cannot be read",
    "nowhere.sql": "is a file; give the SELECT itself",
    "COPY input TO 'stolen.csv'": "is a statement of kind COPY",
    "SELECT * FROM read_csv(concat('/data/', 'secret.csv'))": "calls read_csv(); it can read the table input only",
    "FROM query(concat('FROM ', 'elsewhere'))": "calls query(); it can read the table input only",
    "FROM duckdb_secrets()": "calls duckdb_secrets(); it can read the table input only",
    'WITH x AS (WITH "/p/s.csv" AS (SELECT 1) SELECT 1) FROM "/p/s.csv"': "reads '/p/s.csv'",
    f"SELECT {'+'.join(['1'] * 3000)}, s.* FROM '/p/s.csv' s": "data.query: ",
}


@pytest.mark.parametrize("query", REFUSED, ids=lambda query: query[:40])
def test_a_query_that_reads_or_writes_anything_else_is_refused(query):
    with pytest.raises(InputError) as error:
        load_query(query)
    assert str(error.value).startswith("data.query") and REFUSED[query] in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_is_read_before_the_sandbox_is_closed(tmp_path, monkeypatch):
    """Also where a check of the query overlooks what it reads."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "data").mkdir()
    path = write(tmp_path / "data/t.parquet", COLUMNS)
    monkeypatch.setattr(input_query, "check_query", lambda text: text)
    source = Source(str(path), "data.train", query=f"SELECT wrong FROM read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(InputError) as error, SourceReader(source):
        pass
    assert "wrong" not in str(error.value), "the columns of the file are not known"


@pytest.mark.parametrize("query", ["(SELECT * FROM input)", "SELECT* FROM input", "-- all\nFROM input"])
def test_a_query_may_begin_in_any_way(tmp_path, query):
    assert len(selected(write(tmp_path / "t.csv", COLUMNS), query)["label"]) == 20


def test_a_query_that_does_not_fit_the_file_names_its_columns(tmp_path):
    path = write(tmp_path / "t.csv", COLUMNS)
    message = r"t\.csv: data\.query cannot be run on it: .*colour.*; its columns are tokens, label, amount$"
    with pytest.raises(InputError, match=message):
        selected(path, "SELECT colour FROM input")


def test_a_file_without_labels_gets_null_for_the_label(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    rows = selected(path, "SELECT x, sum(label) OVER () AS label FROM input", null_columns=("label",))
    assert rows == {"x": [1, 2], "label": [None, None]}
    derived = selected(path, "SELECT *, x > 1 AS label FROM input", null_columns=("label",))
    assert derived == {"x": [1, 2], "label": [False, True]}


GROUPED = "SELECT s, list(x) AS tokens, any_value(label) AS label FROM input GROUP BY s"


def test_a_query_that_groups_gives_the_same_splits_each_time(options, tmp_path):
    count, generator = 60_000, np.random.default_rng(0)
    groups = generator.integers(0, 3000, count)
    table = pa.table({"s": groups, "x": generator.integers(0, 9, count), "label": np.array(["a", "b"])[groups % 2]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=4000)
    keys = {"train": tmp_path / "t.parquet", "label": "label", "query": GROUPED, "fields": {"tokens": "category"}}
    first, second = (prepare(options(**keys, cache_dir=tmp_path / name)) for name in "ab")
    assert first.digest == second.digest
    reference = {}
    for group, token in zip(groups.tolist(), table["x"].to_pylist(), strict=True):
        reference.setdefault(group, []).append(token)
    rows = selected(tmp_path / "t.parquet", GROUPED)
    assert rows["s"] == sorted(reference) and rows["tokens"] == [reference[group] for group in rows["s"]]


@pytest.mark.parametrize(
    ("query", "fixed"),
    [
        ("SELECT a + 1 AS a FROM input WHERE b", True),
        ("SELECT a FROM input UNION ALL SELECT b FROM input", True),
        ("WITH t AS (SELECT a FROM input GROUP BY a) FROM t", False),
        ("SELECT DISTINCT a FROM input", False),
        ("SELECT l.a FROM input AS l JOIN input AS r USING (a)", False),
        ("SELECT lag(a) OVER (ORDER BY a) AS a FROM input", False),
    ],
)
def test_rows_are_sorted_where_threads_may_change_their_order(query, fixed):
    assert (in_fixed_order(query) == query) is fixed
    assert in_fixed_order(f"{query} ORDER BY 1") == f"{query} ORDER BY 1"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {} WHERE random() < 0.5",
        "SELECT * FROM {} USING SAMPLE 10",
        "SELECT *, CURRENT_DATE AS day FROM {}",
        "SELECT *, uuid() AS key FROM (SELECT * FROM {})",
    ],
)
def test_a_query_of_other_rows_each_time_is_refused(query):
    with pytest.raises(InputError, match="other rows each time") as caught:
        load_query(query.format("input"))
    assert caught.value.where == "data.query"


def test_columns_may_be_called_like_functions_of_the_time(tmp_path):
    path = write(tmp_path / "t.parquet", {"now": [1, 2], "random": [3, 4]})
    assert selected(path, "SELECT now, random FROM input") == {"now": [1, 2], "random": [3, 4]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM input WHERE b > 0", True),
        ("SELECT x AS a, B FROM input", True),
        ("SELECT * REPLACE (lower(a) AS a) FROM input", False),
        ("SELECT lower(a) AS a, b FROM input", False),
        ("WITH input2 AS (SELECT lower(a) AS a, b FROM input) SELECT a, b FROM input2", False),
        ("SELECT *, lag(b) OVER (ORDER BY a) AS l FROM input", False),
        ("SELECT a, list(b) AS b FROM input GROUP BY a", False),
        ("SELECT b FROM input", False),
    ],
)
def test_a_query_that_changes_a_column_does_not_pass_it_through(query, expected):
    assert passes_through(query, ["a", "b"]) is expected
