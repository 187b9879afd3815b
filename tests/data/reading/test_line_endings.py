"""Files whose lines end in more than one way are read like those with one."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import cells, read, write_lines

from seqclf.data.prepare_data import prepare
from seqclf.data.reading import csv_dialect
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

ENDS = ["\n", "\r\n", "\r"]


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from(ENDS)), max_size=12), st.integers(1, 9))
def test_mixed_ends_are_seen_whatever_the_blocks(tmp_path_factory, lines, block):
    path = tmp_path_factory.mktemp("lines") / "t.csv"
    text = "".join("x" * length + end for length, end in lines)
    path.write_bytes(text.encode())
    alone = text.replace("\r\n", "")
    kinds = {"\r\n"} & {"\r\n" if "\r\n" in text else ""} | (set("\r\n") & set(alone))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_dialect, "BLOCK", block)
        assert csv_dialect.is_mixed.__wrapped__(path, 0, "utf-8") == (len(kinds) > 1)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("ends", [(first, second) for first in ENDS for second in ENDS if first != second])
def test_all_lines_are_read(tmp_path, ends, zipped):
    rows = ["tokens,label", *(f'"[""w{row}"", ""x""]",é' for row in range(20))]
    data = "".join(row + ends[position % 3 == 1] for position, row in enumerate(rows)).encode()
    path = tmp_path / ("t.csv.gz" if zipped else "t.csv")
    path.write_bytes(gzip.compress(data) if zipped else data)
    columns = cells(path, spill=str(tmp_path / "cache"))
    assert columns == {"tokens": [f'["w{row}", "x"]' for row in range(20)], "label": ["é"] * 20}
    assert not list((tmp_path / "cache").iterdir())


def test_newlines_in_cells_of_a_windows_file_survive(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'text,label\r\n"one\ntwo",a\r\nthree,b\r\n')
    assert cells(tmp_path / "t.csv") == {"text": ["one\ntwo", "three"], "label": ["a", "b"]}


def test_a_malformed_line_is_refused_under_the_name_of_its_own_file(options, tmp_path):
    lines = ["tokens,label", *['"[1, 2]",a', '"[3]",b'] * 20]
    write_lines(tmp_path / "1.csv", lines)
    (tmp_path / "2.csv").write_bytes("".join(line + ENDS[position % 2] for position, line in enumerate(lines)).encode())
    with (tmp_path / "2.csv").open("a") as file:
        file.write('"[4]",a,surplus\n"[1, }",a\n')
    dataset = prepare(options(train=tmp_path / "*.csv", label="label"))
    refused = map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines())
    assert {(row["file"], row.get("line"), row.get("row")) for row in refused} == {
        (str(tmp_path / "2.csv"), 42, None),
        (str(tmp_path / "2.csv"), None, 41),
    }


def test_class_folders_and_series_with_mixed_ends(tmp_path):
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "Dutch.txt").write_bytes(b"Aal\r\nBos\nKok\r\n")
    assert cells(tmp_path / "names") == {"text": ["Aal", "Bos", "Kok"], "label": ["Dutch"] * 3}
    (tmp_path / "t.ts").write_bytes(b"@classLabel true a b\r\n@data\n1,2:3,4:a\r\n5:6:b\n")
    (batch,) = read(Source(str(tmp_path / "t.ts"), "data.train"), Schema((), "label"))
    assert batch.columns.column("label").to_pylist() == ["a", "b"]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.ts.gz", "t.tsv"])
@pytest.mark.parametrize("start", [b"", b"@data\nx,label\n1,a\r\n"])
def test_a_line_that_duckdb_would_drop_is_refused(tmp_path, monkeypatch, name, start):
    monkeypatch.setattr(csv_dialect, "BLOCK", 2**10)
    monkeypatch.setattr(csv_dialect, "MAX_LINE_BYTES", 2**14)
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(start + b"1" * 2**16 + b"\n2,b\n"))
    number = start.count(b"\n") + 1
    with pytest.raises(InputError, match=rf"{name}: line {number}: longer than the 2 MB a line of text can have"):
        cells(tmp_path / name)
