"""Every kind of file is read with its types. A file that cannot be read is named in one line."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import LABELS, TOKENS, column_types, sample, simple, write, write_arrow

from seqclf.data.reading.sources import Source
from seqclf.errors import InputError


def source(path):
    return Source(str(path), "data.train")


def test_json_types_follow_the_file(tmp_path):
    path = write(tmp_path / "t.jsonl", {"x": [1, 2]})
    assert column_types(source(path)) == {"x": "BIGINT"}
    write(path, {"x": ["a", "b", "c"]})
    assert column_types(source(path)) == {"x": "VARCHAR"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nope.csv", None, r"data.train=.*nope.csv: no such file; check the path \(it is read from "),
        ("t.csv", b"", r"t.csv: the file is empty; give a file with a row per sequence"),
        ("t.dat", b"x", r"data.train=.*t.dat: unknown kind of file '.dat'; give .arrow, .csv, .feather, "),
        ("t.parquet", bytes(range(256)) * 9, r"t.parquet: cannot be read: .*; replace the file"),
        ("t.arrow", bytes(range(256)) * 9, r"t.arrow: is not a readable Arrow file; write it again, in the IPC file"),
        (
            "t.jsonl",
            b'{"x": 1}\n{"x": \n{"x": 3}\n',
            r"t.jsonl: cannot be read: Malformed JSON at byte .*line .*; fix or replace the file",
        ),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        sample(source(tmp_path / name), 9)
    assert "\n" not in str(caught.value)


def test_a_folder_is_not_a_file(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(InputError, match=r"is a folder; name its files: .*/\*.parquet"):
        column_types(source(tmp_path / "*.csv"))
    with pytest.raises(InputError, match=r"data.train=.*/t.csv: an empty folder; check the path"):
        column_types(source(tmp_path / "t.csv"))


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


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.3, 0.4])
def test_a_damaged_arrow_file_is_named_before_duckdb_trusts_it(tmp_path, fraction):
    path = write(tmp_path / "t.arrow", {"x": ["some text"] * 999 + ["é"], "label": [[1, 2]] * 1000})
    data = bytearray(path.read_bytes())
    begin = int(len(data) * fraction)
    data[begin : begin + 400] = b"\xff" * 400
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"t.arrow: (is not a readable Arrow file|holds text that is not valid utf-8)"):
        column_types(source(path))
