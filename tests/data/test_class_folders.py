"""A folder with a file, or a folder, per class is a table of texts and labels."""

import gzip
import json

import pytest
from table_files import write

from seqclf.data.prepare import prepare
from seqclf.data.reading import read
from seqclf.data.schema import Schema
from seqclf.data.sources import Source
from seqclf.errors import InputError

LINES = {"Dutch": ["Aalsburg", "de Vries", 'Q"uote', "Bos\twold"], "Irish": ["Ó'Neill", "Byrne"], "Korean": ["Kim"] * 6}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "names").mkdir()
    for name, lines in LINES.items():
        (tmp_path / "names" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "names" / ".hidden").write_text("no class")
    return tmp_path / "names"


def rows_of(folder, **options):
    from seqclf.data.fields import Field

    schema = Schema((Field("text", "text", ("text",)),), "label")
    found = []
    for batch in read(Source(str(folder), "data.train", **options), schema):
        texts, labels = (batch.columns.column(name).to_pylist() for name in ("text", "label"))
        found += zip(texts, labels, batch.rows.tolist(), [batch.file.rsplit("/", 1)[1]] * len(texts), strict=True)
    return found


def test_every_line_is_a_sequence_with_the_label_of_its_file(folder):
    expected = [(line, name, row, f"{name}.txt") for name, lines in LINES.items() for row, line in enumerate(lines, 1)]
    assert rows_of(folder) == expected


def test_crlf_and_gzip_are_read_alike(folder, tmp_path):
    (tmp_path / "zipped").mkdir()
    for name, lines in LINES.items():
        (tmp_path / "zipped" / f"{name}.txt.gz").write_bytes(gzip.compress("\r\n".join([*lines, ""]).encode()))
    plain = [(text, label, row) for text, label, row, _ in rows_of(folder)]
    assert [(text, label, row) for text, label, row, _ in rows_of(tmp_path / "zipped")] == plain


def test_a_folder_of_texts_per_class(tmp_path):
    for name, lines in LINES.items():
        (tmp_path / "t" / name).mkdir(parents=True)
        for place, line in enumerate(lines):
            (tmp_path / "t" / name / f"{place}.txt").write_text(f"{line}\nsecond line", encoding="utf-8")
    expected = [(f"{line}\nsecond line", name) for name, lines in LINES.items() for line in lines]
    assert [(text, label) for text, label, *_ in rows_of(tmp_path / "t")] == expected


def test_tables_per_class_get_the_label_of_their_file(options, tmp_path):
    (tmp_path / "t").mkdir()
    for name in ("good", "bad"):
        write(tmp_path / "t" / f"{name}.parquet", {"x": [[1, 2]] * 10})
    dataset = prepare(options(train=tmp_path / "t", label="label"))
    assert dataset.classes == ["bad", "good"]
    assert sum(len(split.sequences) for split in dataset.splits.values()) == 20


def test_what_a_folder_must_hold_is_said(options, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"data.train=.*/empty: an empty folder"):
        prepare(options(train=tmp_path / "empty", label="label"))
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.txt").write_text("x\n")
    write(tmp_path / "mixed" / "b.parquet", {"x": [[1]]})
    with pytest.raises(InputError, match=r"a.txt and .*b.parquet are of two kinds; name one kind of file"):
        prepare(options(train=tmp_path / "mixed", label="label"))
    (tmp_path / "deep" / "a").mkdir(parents=True)
    write(tmp_path / "deep" / "a" / "b.parquet", {"x": [[1]]})
    with pytest.raises(InputError, match=r"a folder per class must hold text files, not '.parquet'; give the files"):
        prepare(options(train=tmp_path / "deep", label="label"))


def test_a_line_that_is_not_utf8_is_refused_alone(folder, options):
    with (folder / "Korean.txt").open("ab") as file:
        file.write(b"Caf\xe9\n")
    dataset = prepare(options(train=folder, label="label"))
    (refused,) = map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines())
    assert (refused["line"], refused["file"]) == (7, str(folder / "Korean.txt"))
    assert refused["reason"].startswith("is not valid utf-8")
