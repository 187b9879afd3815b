"""CSV: columns, delimiter, quotes, encodings, and the line that is wrong."""

import json

import pytest
from support.table_files import cells, column_types, simple, write_csv, write_lines

from seqclf.data.prepare_data import prepare
from seqclf.data.reading import csv_dialect
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

ROWS = ['"[1, 2]",a', '"[3]",b'] * 20


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_the_delimiter_is_detected(tmp_path, delimiter, header):
    path = write_csv(tmp_path / "t.csv", simple(), delimiter=delimiter)
    columns = cells(path, header=header)
    assert list(columns) == (["tokens", "label"] if header else ["column0", "column1"])
    assert len(next(iter(columns.values()))) == 20 + (not header)


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ";"), ("t.txt", "\t")])
def test_commas_in_text_do_not_hide_the_delimiter(tmp_path, name, delimiter):
    path = write_lines(tmp_path / name, [f"text{delimiter}label", f"one, two, three{delimiter}a"])
    assert cells(path) == {"text": ["one, two, three"], "label": ["a"]}


@pytest.mark.parametrize("mark", ["|", "\\t"])
def test_a_named_delimiter_is_used(tmp_path, mark):
    path = write_lines(tmp_path / "t.csv", ["a,b|c\td,e|f", "1,2|3\t4,5|6"])
    assert len(cells(path, delimiter=mark)) == (3 if mark == "|" else 2)


def test_quotes_can_be_turned_off(tmp_path):
    path = write_lines(tmp_path / "t.csv", ["text,label", 'say "hi",a', '"open,b'])
    assert cells(path, quote="") == {"text": ['say "hi"', '"open'], "label": ["a", "b"]}
    with pytest.raises(InputError, match=r"t.csv: line 3: Value with unterminated quote found; .*data.quote"):
        cells(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_newlines_and_quotes_inside_cells_survive(tmp_path, newline):
    (tmp_path / "t.csv").write_bytes(newline.join(["text,label", '"one', 'say ""two""",a', "three,b"]).encode())
    texts = cells(tmp_path / "t.csv")["text"]
    assert [text.replace("\r\n", "\n") for text in texts] == ['one\nsay "two"', "three"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_each_encoding_is_read(tmp_path, encoding):
    path = write_lines(tmp_path / "t.csv", ["texté,label", "où,a"], encoding)
    assert cells(path, encoding=encoding) == {"texté": ["où"], "label": ["a"]}


@pytest.mark.parametrize("position", [1, 20_000])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('"[1]",a,b', "is malformed: Expected Number of Columns: 2 Found: 3"),
        ('"[1]"', "is malformed: Expected Number of Columns: 2 Found: 1"),
        ("[1é],a", "is not valid utf-8; set data.encoding=latin-1"),
        ('"[1]"x,"a"b', "is malformed: Value with unterminated quote found"),
    ],
)
def test_training_refuses_a_malformed_line_and_keeps_the_others(options, tmp_path, position, line, reason):
    lines = ["tokens,label", *ROWS * (position // 40 + 1)]
    path = write_lines(tmp_path / "t.csv", [*lines[:position], line, *lines[position:]], "latin-1")
    with pytest.raises(InputError, match=rf"t.csv: line {position + 1}"):
        cells(path)
    dataset = prepare(options(train=path, label="label"))
    (refused,) = map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines())
    assert refused["line"] == position + 1 and refused["reason"].startswith(reason)
    counts = dataset.report
    assert counts["train"].refused == 1
    assert sum(split.used for split in counts.values()) == len(lines) - 1


@pytest.mark.parametrize(
    ("tail", "rows"),
    [('"[1],a', 100), ('[1],"' + '"' * 6_000_000, 100), ('"[1],a', 40_000)],
    ids=["a list", "megabytes", "more than DuckDB's buffer"],
)
@pytest.mark.parametrize("newline", ["\n", "\r"])
def test_an_unclosed_quote_stops_training_and_loses_no_row_silently(options, tmp_path, tail, rows, newline):
    token = "k" if rows < 1000 else "k" * 1000
    rows = [f"{row},[{token}],{'ab'[row % 2]}" for row in range(rows)]
    rows[30] = f"30,{tail}"
    path = tmp_path / "t.csv"
    path.write_bytes(newline.join(["id,tokens,label", *rows, ""]).encode())
    with pytest.raises(InputError, match=r"t.csv: line 32: a quote is never closed and swallows the lines after it"):
        prepare(options(train=path, label="label"))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["1," * 500_000], marks=pytest.mark.slow, id="one line"),
        pytest.param(["[" + ",".join(map(str, range(800))) + "],a"] * 300, id="lists that nobody quoted"),
    ],
)
def test_surplus_cells_that_duckdb_would_keep_stop_training_at_once(options, tmp_path, lines):
    """It would keep a copy of a malformed line for each of its columns: 2 GB of these lists."""
    path = write_lines(tmp_path / "t.csv", ["tokens,label", *ROWS, *lines])
    with pytest.raises(InputError, match=r"t.csv: line 42: Expected Number of Columns: 2 Found: 3; fix the line"):
        prepare(options(train=path, label="label"))


def test_long_lists_in_quotes_are_not_surplus_cells(options, tmp_path):
    lists = [f'"[{",".join(map(str, range(800)))}]",{label}' for label in "ab" * 150]
    path = write_lines(tmp_path / "t.csv", ["tokens,label", *lists, "[1],a,surplus"])
    dataset = prepare(options(train=path, label="label"))
    assert dataset.report["train"].refused == 1


@pytest.mark.slow
def test_a_line_beyond_two_megabytes_is_named(options, tmp_path):
    path = write_lines(tmp_path / "t.csv", ["tokens,label", *ROWS, f'"[{"1," * 1_200_000}1]",a'])
    with pytest.raises(InputError, match=r"t.csv: line 42: longer than the 2 MB .*write such data as JSON lines"):
        cells(path)
    with pytest.raises(InputError, match=r"t.csv: line 42: longer than the 2 MB .*write such data as JSON lines"):
        prepare(options(train=path, label="label"))
    long = write_lines(tmp_path / "long.csv", ["tokens,label", f'"[{"1," * 900_000}1]",a'])
    assert len(cells(long)["tokens"][0]) == 1_800_003


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("x,label,x", r"t.csv: columns 'x' and 'x' have the same name \(case does not count\); rename one"),
        ("x,X,label", r"t.csv: columns 'x' and 'X' have the same name"),
        ("téxt,label,b", r"t.csv: line 1 is not valid utf-8; set data.encoding=latin-1"),
    ],
)
def test_unusable_headers_are_named(tmp_path, header, message):
    path = write_lines(tmp_path / "t.csv", [header, "1,2,3"], "latin-1")
    with pytest.raises(InputError, match=message):
        column_types(Source(str(path), "data.train"))


def test_unnamed_columns_are_numbered(tmp_path):
    assert list(cells(write_lines(tmp_path / "t.csv", [",x, y,", "1,2,3,4"]))) == ["column0", "x", "y", "column3"]


def test_files_of_other_columns_are_named(tmp_path):
    write_lines(tmp_path / "1.csv", ["x,label", "1,2"])
    write_lines(tmp_path / "2.csv", ["label,x", "1,2"])
    with pytest.raises(
        InputError, match=r"2.csv: has the columns label, x, but .*1.csv has x, label; give files of the"
    ):
        cells(tmp_path / "*.csv")


def test_the_header_of_a_row_without_end_is_read_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_dialect, "MAX_BEGINNING", 1000)
    path = write_lines(tmp_path / "t.csv", ["x,label", *'"1\n",' * 5000])
    assert csv_dialect._beginning(path, "utf-8", '"', ",", True)[1] < 600
