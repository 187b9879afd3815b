"""A folder with a file, or a folder, per class is a table of texts and labels."""

import gzip
import json

import pytest
from support.table_files import read, write

from seqclf.data.prepare_data import prepare
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field, Schema
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
    schema = Schema((Field("text", "text", ("text",)),), "label")
    rows = []
    for batch in read(Source(str(folder), "data.train", **options), schema):
        texts, labels = (batch.columns.column(name).to_pylist() for name in ("text", "label"))
        files = [batch.file_of(position).rsplit("/", 1)[1] for position in range(len(texts))]
        rows += zip(texts, labels, batch.row_numbers.tolist(), files, strict=True)
    return rows


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
        for position, line in enumerate(lines):
            (tmp_path / "t" / name / f"{position}.txt").write_text(f"{line}\nsecond line", encoding="utf-8")
    expected = [(f"{line}\nsecond line", name) for name, lines in LINES.items() for line in lines]
    assert [(text, label) for text, label, *_ in rows_of(tmp_path / "t")] == expected


def tree(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


DEEP = {
    f"{label}/{position % 3}/{position}.txt": f"{label} {position}"
    for label in ("pos", "neg")
    for position in range(20)
}


def test_files_of_deeper_folders_have_the_class_of_the_first(tmp_path):
    folder = tree(tmp_path / "t", {**DEEP, "neg/a/b/c/21.txt": "deep", "pos/top.txt": "top"})
    assert sorted((text, label) for text, label, *_ in rows_of(folder)) == sorted(
        [*((text, name[:3]) for name, text in DEEP.items()), ("deep", "neg"), ("top", "pos")]
    )


@pytest.mark.parametrize("name", [".", "t/../t", "t's [1]/"])
def test_the_class_is_right_however_the_folder_is_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / ("t's [1]" if "[" in name else "t" if "t" in name else "."), {"a/x.txt": "1", "b/c/y.txt": "2"})
    schema = Schema((Field("text", "text", ("text",)),), "label")
    batches = list(read(Source(name, "data.train"), schema))
    assert [label for batch in batches for label in batch.columns.column("label").to_pylist()] == ["a", "b"]


def test_every_file_is_used_or_refused_by_name_unless_it_is_hidden(options, tmp_path):
    stray = {"README.md": "about", "urls.txt": "http://", "pos/empty.txt": ""}
    hidden = {".DS_Store": "x", "pos/.DS_Store": "x", ".git/config/a.txt": "x", "neg/.cache/b.txt": "x"}
    folder = tree(tmp_path / "t", {**DEEP, **stray, **hidden})
    dataset = prepare(options(train=folder, label="label"))
    refused = list(map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines()))
    assert {entry["file"] for entry in refused} == {str(folder / name) for name in stray}
    counts = dataset.report.values()
    assert sum(split.used + split.refused for split in counts) == len(DEEP) + len(stray)
    assert dataset.classes == ["neg", "pos"]


def test_new_files_outside_the_class_folders_make_the_cache_stale(options, tmp_path):
    folder = tree(tmp_path / "t", DEEP)
    assert prepare(options(train=folder, label="label")).report["train"].refused == 0
    tree(folder, {"README.md": "about"})
    assert prepare(options(train=folder, label="label")).report["train"].refused == 1


def test_links_are_followed_but_not_round_in_circles(tmp_path):
    folder = tree(tmp_path / "t", {"a/1.txt": "one", "b/2.txt": "two"})
    tree(tmp_path / "elsewhere", {"3.txt": "three"})
    (folder / "b" / "more").symlink_to(tmp_path / "elsewhere")
    (folder / "b" / "round").symlink_to(folder)
    assert [(text, label) for text, label, *_ in rows_of(folder)] == [("one", "a"), ("two", "b"), ("three", "b")]


def test_a_folder_per_class_holds_text_files(options, tmp_path):
    for folder in (tmp_path / "flat", tmp_path / "deep" / "a"):
        folder.mkdir(parents=True)
        write(folder / "b.parquet", {"x": [[1]]})
        with pytest.raises(InputError, match=r"must hold text files, not '.parquet'"):
            prepare(options(train=tmp_path / folder.relative_to(tmp_path).parts[0], label="label"))


def test_a_line_that_is_not_utf8_is_refused_alone(folder, options):
    with (folder / "Korean.txt").open("ab") as file:
        file.write(b"Caf\xe9\n")
    dataset = prepare(options(train=folder, label="label"))
    (refused,) = map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines())
    assert (refused["line"], refused["file"]) == (7, str(folder / "Korean.txt"))
    assert refused["reason"].startswith("is not valid utf-8")
