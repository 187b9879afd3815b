"""Rows are read in order, in full batches, and numbered. Malformed lines stop the read or are refused."""

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import LABELS, TOKENS, read, sample, simple, write, write_lines

from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source, local_files
from seqclf.data.schema.schema import Field, Schema
from seqclf.errors import InputError
from seqclf.system import signals

SCHEMA = Schema((Field("tokens", "category", ("tokens",), "integer"),), "label")
KINDS = ("csv", "jsonl", "parquet", "arrow")


def source(path):
    return Source(str(path), "data.train")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 20, 50])
def test_rows_are_read_in_file_order_and_in_full_batches(tmp_path, kind, rows):
    batches = read(source(write(tmp_path / f"t.{kind}", simple())), SCHEMA, rows=rows)
    assert [batch.columns.num_rows for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert [row for batch in batches for row in batch.row_numbers] == list(range(1, 21))
    assert [row for batch in batches for row in batch.columns["tokens"].to_pylist()] == TOKENS
    assert [row for batch in batches for row in batch.columns["label"].to_pylist()] == LABELS


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_glob_are_numbered_within_each_file(tmp_path, kind):
    for part, rows in enumerate([3, 1, 5]):
        write(tmp_path / f"part {part}.{kind}", {"tokens": TOKENS[:rows], "label": LABELS[:rows]})
    glob = source(tmp_path / f"part*.{kind}")
    for rows in (2, 100):
        result = [
            (Path(batch.file_of(position)).name, row, tokens)
            for batch in read(glob, SCHEMA, rows=rows)
            for position, (row, tokens) in enumerate(
                zip(batch.row_numbers, batch.columns["tokens"].to_pylist(), strict=True)
            )
        ]
        expected = [
            (f"part {part}.{kind}", row, TOKENS[row - 1]) for part, n in enumerate([3, 1, 5]) for row in range(1, n + 1)
        ]
        assert result == expected
    with SourceReader(glob) as reader:
        assert reader.count_rows() == 9 and len(local_files(glob)) == 3


def test_a_file_named_like_a_glob_is_read_as_itself(tmp_path):
    for name in ("data[1].csv", "data1.csv", "what?.csv"):
        write(tmp_path / name, {"tokens": [[7]], "label": [name]})
    for name in ("data[1].csv", "what?.csv"):
        (batch,) = read(source(tmp_path / name), SCHEMA)
        assert batch.columns["label"].to_pylist() == [name]


def test_a_damaged_block_far_into_a_file_is_named(tmp_path):
    table = pa.table({"tokens": [[row, row + 1] for row in range(60_000)], "label": ["a"] * 60_000})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=20_000, compression="zstd")
    damaged = bytearray((tmp_path / "t.parquet").read_bytes())
    half = len(damaged) // 2
    damaged[half : half + 20_000] = bytes(20_000)
    (tmp_path / "t.parquet").write_bytes(damaged)
    with pytest.raises(InputError, match=r"t.parquet: cannot be read: ") as caught:
        read(source(tmp_path / "t.parquet"), SCHEMA)
    assert "\n" not in str(caught.value)


def test_a_json_array_is_read_like_json_lines(tmp_path):
    path = write_lines(tmp_path / "t.json", ['[{"tokens": [1, 2], "label": "a"},', ' {"tokens": [3], "label": "b"}]'])
    (batch,) = read(source(path), SCHEMA)
    assert batch.columns["tokens"].to_pylist() == [[1, 2], [3]]


@pytest.fixture
def malformed(tmp_path):
    """Two files of 20 good rows, the second with a malformed line as its third row and its last."""
    good = [f'"{tokens}",{label}' for tokens, label in zip(TOKENS, LABELS, strict=True)]
    write_lines(tmp_path / "1.csv", ["tokens,label", *good])
    write_lines(tmp_path / "2.csv", ["tokens,label", *good[:2], '"[1]",a,b', *good[2:], '"[2]"'])
    return tmp_path


def test_each_malformed_line_is_one_refusal_and_the_other_rows_are_all_read(malformed):
    with SourceReader(source(malformed / "*.csv"), keep_malformed=True) as reader:
        batches = list(reader.read(SCHEMA, rows=7))
    result = reader.malformed
    assert [(refusal.file, refusal.row, refusal.line) for refusal in result] == [
        (str(malformed / "2.csv"), None, line) for line in (4, 23)
    ]
    assert str(result[0]).startswith(f"{malformed / '2.csv'}: line 4: ")
    assert "is malformed: Expected Number of Columns: 2 Found: 3; fix the line" in result[0].reason
    assert [row for batch in batches for row in batch.columns["tokens"].to_pylist()] == TOKENS * 2
    assert [row for batch in batches for row in batch.row_numbers] == [*range(1, 21)] * 2
    assert sample(source(malformed / "2.csv"), 100).num_rows == 20


@pytest.mark.parametrize("rows", [2, 100])
def test_a_sample_reports_no_malformed_line_twice(malformed, rows):
    with SourceReader(source(malformed / "*.csv"), keep_malformed=True) as reader:
        assert reader.sample(rows).num_rows == min(rows, 40)
        assert reader.sample(rows).column_names == ["tokens", "label"]
        assert sum(len(batch.row_numbers) for batch in reader.read(SCHEMA)) == 40
    assert [refusal.line for refusal in reader.malformed] == [4, 23]


def test_a_signal_whose_exception_was_lost_ends_the_read_unless_it_is_deferred(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv", simple())
    monkeypatch.setattr(signals._SignalState, "received", signal.SIGINT)
    with pytest.raises(signals.Terminated) as ended:
        read(source(path), SCHEMA)
    assert ended.value.code == 130
    monkeypatch.setattr(signals._SignalState, "deferred", True)
    assert sum(batch.columns.num_rows for batch in read(source(path), SCHEMA)) == 20
