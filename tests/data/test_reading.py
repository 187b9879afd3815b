"""Files, globs and queries are found, read in order and counted; what cannot be read is named."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import LABELS, TOKENS, simple, write, write_arrow, write_lines

from seqclf.data.fields import Field
from seqclf.data.reading import column_types, count_rows, read, sample
from seqclf.data.schema import Schema
from seqclf.data.sources import Source, is_remote, local_files, source_digest
from seqclf.errors import InputError

SCHEMA = Schema((Field("tokens", "category", ("tokens",), "integer"),), "label")
KINDS = ("csv", "jsonl", "parquet", "arrow")


def source(path):
    return Source(str(path), "data.train")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 20, 50])
def test_rows_come_in_file_order_and_in_full_batches(tmp_path, kind, rows):
    batches = list(read(source(write(tmp_path / f"t.{kind}", simple())), SCHEMA, rows=rows))
    assert [batch.columns.num_rows for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert [row for batch in batches for row in batch.rows] == list(range(1, 21))
    assert [row for batch in batches for row in batch.columns["tokens"].to_pylist()] == TOKENS
    assert [row for batch in batches for row in batch.columns["label"].to_pylist()] == LABELS


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_glob_are_numbered_within_each_file(tmp_path, kind):
    for part, rows in enumerate([3, 1, 5]):
        write(tmp_path / f"part {part}.{kind}", {"tokens": TOKENS[:rows], "label": LABELS[:rows]})
    glob = source(tmp_path / f"part*.{kind}")
    for rows in (2, 100):
        found = [
            (Path(batch.file).name, row, tokens)
            for batch in read(glob, SCHEMA, rows=rows)
            for row, tokens in zip(batch.rows, batch.columns["tokens"].to_pylist(), strict=True)
        ]
        expected = [
            (f"part {part}.{kind}", row, TOKENS[row - 1]) for part, n in enumerate([3, 1, 5]) for row in range(1, n + 1)
        ]
        assert found == expected
    assert count_rows(glob) == 9 and len(local_files(glob)) == 3


def test_a_file_named_like_a_glob_is_read_as_itself(tmp_path):
    for name in ("data[1].csv", "data1.csv", "what?.csv"):
        write(tmp_path / name, {"tokens": [[7]], "label": [name]})
    for name in ("data[1].csv", "what?.csv"):
        (batch,) = read(source(tmp_path / name), SCHEMA)
        assert batch.columns["label"].to_pylist() == [name]


def test_queries_and_sql_files_are_read(tmp_path):
    path = write(tmp_path / "t.parquet", simple())
    query = f"SELECT * FROM '{path}' WHERE label = 'a'"
    for text in (query, f"{query};\n", f"{query} -- half of them", f"WITH t AS ({query}) FROM t"):
        (tmp_path / "q.sql").write_text(text)
        for given in (source(text), source(tmp_path / "q.sql")):
            assert count_rows(given) == 10
            assert path in local_files(given)
    assert str(source(query)) == "data.train" and str(source("t.sql")) == "t.sql"


def test_the_digest_follows_the_files_and_how_they_are_read(tmp_path):
    path = write(tmp_path / "t.parquet", simple())
    (tmp_path / "q.sql").write_text(f"FROM '{path}'")
    digests = [source_digest(source(name)) for name in (path, tmp_path / "q.sql")]
    assert digests == [source_digest(source(name)) for name in (path, tmp_path / "q.sql")]
    assert source_digest(Source(str(path), "data.train", encoding="latin-1")) != digests[0]
    os.utime(path, ns=(1, 1))
    assert all(
        source_digest(source(name)) != old for name, old in zip((path, tmp_path / "q.sql"), digests, strict=True)
    )


def test_json_types_follow_the_file(tmp_path):
    path = write(tmp_path / "t.jsonl", {"x": [1, 2]})
    assert column_types(source(path)) == {"x": "BIGINT"}
    write(path, {"x": ["a", "b", "c"]})
    assert column_types(source(path)) == {"x": "VARCHAR"}


def test_urls_are_left_to_duckdb():
    assert is_remote(source("https://example.org/t.parquet")) and local_files(source("s3://bucket/*.csv")) == []
    assert not is_remote(source("t.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nope.csv", None, r"data.train=.*nope.csv: no such file; check the path \(it is read from "),
        ("nope*.csv", None, r"data.train=.*nope\*.csv: no such file"),
        ("t.sql", None, r"data.train=.*t.sql: no such file"),
        ("t.csv", b"", r"t.csv: the file is empty; give a file with a row per sequence"),
        ("t.csv", b"\n\n", r"t.csv: has no rows; give a file with a row per sequence"),
        ("t.dat", b"x", r"data.train=.*t.dat: unknown kind of file '.dat'; give .csv"),
        ("t.parquet.gz", b"x", r"t.parquet.gz: cannot be read: .*; replace the file"),
        ("t.sql", b"SELEC 1", r"t.sql: cannot be read: .*syntax error.*; mend the query"),
        ("t.sql", b" ", r"t.sql: cannot be read: .*syntax error"),
        ("t.sql", b"SELECT * FROM 'nope.csv'", r"t.sql: cannot be read: No files found .*nope.csv.*; mend the query"),
        ("t.parquet", bytes(range(256)) * 9, r"t.parquet: cannot be read: .*; replace the file"),
        ("t.arrow", bytes(range(256)) * 9, r"t.arrow: is not a readable Arrow file; write it again, in the IPC file"),
        ("t.feather", bytes(range(256)) * 9, r"t.feather: is not a readable Arrow file"),
        ("t.jsonl", bytes(range(256)) * 9, r"t.jsonl: cannot be read: Malformed JSON.*; mend or replace the file"),
        ("t.csv", bytes(range(256)) * 9, r"t.csv"),
        (
            "t.jsonl",
            b'{"x": 1}\n{"x": \n{"x": 3}\n',
            r"t.jsonl: cannot be read: Malformed JSON at byte .*line .*; mend or replace the file",
        ),
        ("t.jsonl", b'{"x": 1, "x": 2}\n', r"t.jsonl: cannot be read: .*duplicate key"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        sample(source(tmp_path / name), 9)
    assert "\n" not in str(caught.value)


def test_a_bad_query_is_named_by_its_key():
    with pytest.raises(InputError, match=r"^data.train: cannot be read: Table with name nowhere .*; mend the query"):
        column_types(source("select * from nowhere"))


def test_a_folder_is_not_a_file(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(InputError, match=r"is a folder; name its files: .*/\*.parquet"):
        column_types(source(tmp_path / "*.csv"))


def test_files_of_two_kinds_are_not_one_source(tmp_path):
    for kind in ("csv", "jsonl"):
        write(tmp_path / f"t.{kind}", simple())
    with pytest.raises(InputError, match=r"t.csv and .*t.jsonl are of two kinds; name one kind of file"):
        column_types(source(tmp_path / "*"))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_of_the_same_name_are_refused(tmp_path, kind):
    table = pa.Table.from_arrays([pa.array(TOKENS), pa.array(LABELS), pa.array(LABELS)], ["tokens", "label", "label"])
    path = tmp_path / f"t.{kind}"
    pq.write_table(table, path) if kind == "parquet" else write_arrow(path, table)
    with pytest.raises(InputError, match=rf"t.{kind}: columns 'label' and 'label' have the same name"):
        column_types(source(path))


def test_a_damaged_block_far_into_a_file_is_named(tmp_path):
    table = pa.table({"tokens": [[row, row + 1] for row in range(60_000)], "label": ["a"] * 60_000})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=20_000, compression="zstd")
    damaged = bytearray((tmp_path / "t.parquet").read_bytes())
    half = len(damaged) // 2
    damaged[half : half + 20_000] = bytes(20_000)
    (tmp_path / "t.parquet").write_bytes(damaged)
    with pytest.raises(InputError, match=r"t.parquet: cannot be read: ") as caught:
        list(read(source(tmp_path / "t.parquet"), SCHEMA))
    assert "\n" not in str(caught.value)


def test_a_built_in_file_that_does_not_exist_is_named():
    with pytest.raises(InputError, match=r"data.train=builtin:nope.parquet: no such built-in file"):
        column_types(source("builtin:nope.parquet"))


def test_no_column_of_the_file_is_mistaken_for_its_name(tmp_path):
    table = simple(filename=["x"] * 20, file=["y"] * 20)
    for part in (1, 2):
        write(tmp_path / f"{part}.csv", table)
    batches = list(read(source(tmp_path / "*.csv"), SCHEMA))
    assert [Path(batch.file).name for batch in batches] == ["1.csv", "2.csv"]
    assert list(column_types(source(tmp_path / "*.csv"))) == list(table)


def test_a_json_array_is_read_like_json_lines(tmp_path):
    path = write_lines(tmp_path / "t.json", ['[{"tokens": [1, 2], "label": "a"},', ' {"tokens": [3], "label": "b"}]'])
    (batch,) = read(source(path), SCHEMA)
    assert batch.columns["tokens"].to_pylist() == [[1, 2], [3]]
