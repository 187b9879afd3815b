"""File formats of another package: found by an entry point, and read wherever files are."""

import gzip
import json

import pytest
from support.plugin_package import documented_example, install_package
from support.table_files import column_types, read, sample

from seqclf.data.prepare import prepare
from seqclf.data.reading.format_lookup import builtin_formats
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field, Schema
from seqclf.errors import InputError

FASTA = documented_example("A file format")
PIPED = documented_example("A file format", number=2)
LETTERS = Schema((Field("letters", "category", ("letters",)),), "label", id="id")
OTHER = """
import pyarrow as pa

from seqclf.extend import ArrowFormat


KINDS = {"a": "sine", "b": "square"}


class Signal(ArrowFormat):
    endings = (".signal",)

    def read(self, path):
        for line in filter(None, path.read_text().splitlines()):
            letter, *values = line.split()
            kind = pa.array([KINDS[letter]]).dictionary_encode()  # another dictionary in each record batch
            yield pa.record_batch({"x": [[float(value) for value in values]], "kind": kind})


NO_FORMAT = "a text"
"""


@pytest.fixture(autouse=True)
def packages(monkeypatch, tmp_path_factory):
    """Two packages with formats, and an entry point that names nothing."""
    folder = tmp_path_factory.mktemp("packages")
    install_package(
        monkeypatch, folder, "bioformats", {"fasta.py": FASTA}, {"seqclf.formats": {"fasta": "fasta:Fasta"}}
    )
    entries = {"signal": "other:Signal", "piped": "piped:PipeSeparated", "broken": "missing:Nothing"}
    entries["crash"] = "crash:Nothing"
    modules = {
        "crash.py": "raise RuntimeError('of its own')",
        "other.py": OTHER,
        "piped.py": PIPED.replace('(".psv",)', '(".psv", ".csv")'),
    }
    install_package(monkeypatch, folder, "otherformats", modules, {"seqclf.formats": entries})
    return folder


def write_fasta(path, rows=20, first=0):
    """Sequences of A and C of class `ac`, and of G and T of class `gt`, in lines of at most four letters."""
    lines = []
    for row in range(first, first + rows):
        label = ("ac", "gt")[row % 2]
        letters = label.upper() * (1 + row % 5)
        lines += [f">s{row} {label}", *(letters[start : start + 4] for start in range(0, len(letters), 4))]
    text = "\n".join([*lines, ""])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def source(path, **options):
    return Source(str(path), "data.train", **options)


def test_a_file_is_read_by_the_format_of_its_ending(tmp_path):
    table = sample(source(write_fasta(tmp_path / "T.FASTA")), 3)
    assert table.to_pylist() == [
        {"id": "s0", "label": "ac", "letters": ["A", "C"]},
        {"id": "s1", "label": "gt", "letters": list("GTGT")},
        {"id": "s2", "label": "ac", "letters": list("ACACAC")},
    ]


def test_rows_of_a_glob_are_numbered_within_their_files(tmp_path):
    for part in range(3):
        write_fasta(tmp_path / f"part{part}.fasta{'.gz' if part == 1 else ''}", rows=4 + part, first=10 * part)
    (rows,) = read(source(tmp_path / "part*"), LETTERS)
    expected = [
        (f"s{10 * part + row}", str(tmp_path / f"part{part}.fasta{'.gz' if part == 1 else ''}"), row + 1)
        for part in range(3)
        for row in range(4 + part)
    ]
    ids = rows.columns.column("id").to_pylist()
    assert [(name, rows.file_of(position), rows.row_numbers[position]) for position, name in enumerate(ids)] == expected


def test_the_table_is_read_more_than_once_and_by_a_query(tmp_path):
    path = write_fasta(tmp_path / "t.fasta")
    query = "SELECT a.id, b.label FROM input AS a JOIN input AS b USING (id) WHERE a.label = 'gt'"
    with SourceReader(source(path, query=query)) as reader:
        assert reader.column_types == {"id": "VARCHAR", "label": "VARCHAR"}
        assert reader.count_rows() == reader.count_rows() == 10
    with pytest.raises(InputError, match=r"data.query: reads"):
        sample(source(path, query="SELECT * FROM input, 'other.csv'"), 1)


def test_rows_that_are_refused_are_named_by_file_and_row(options, tmp_path):
    write_fasta(tmp_path / "a.fasta")
    with write_fasta(tmp_path / "b.fasta").open("a") as file:
        file.write(">empty ac\n")
    dataset = prepare(options(train=tmp_path / "*.fasta", label="label", id="id", max_bad_share=0.5))
    (refused,) = map(json.loads, (dataset.folder / "quarantine.jsonl").read_text().splitlines())
    assert (refused["file"], refused["row"]) == (str(tmp_path / "b.fasta"), 21)


def test_a_change_of_the_file_or_of_the_format_makes_the_cache_stale(options, tmp_path, packages):
    path = write_fasta(tmp_path / "t.fasta")
    first = prepare(options(train=path, label="label"))
    assert prepare(options(train=path, label="label")).folder == first.folder
    write_fasta(path, rows=30)
    second = prepare(options(train=path, label="label"))
    assert second.report["train"].used > first.report["train"].used
    code = packages / "bioformats" / "fasta.py"
    code.write_text(code.read_text() + "\n# changed\n")
    assert prepare(options(train=path, label="label")).folder != second.folder


def test_a_file_per_class_and_a_file_per_sequence(tmp_path):
    for label in ("odd", "even"):
        (tmp_path / "lines").mkdir(exist_ok=True)
        (tmp_path / "lines" / f"{label}.signal").write_text("a 1 2\nb 3\n")
        for number in range(2):
            (tmp_path / "files" / label).mkdir(parents=True, exist_ok=True)
            (tmp_path / "files" / label / f"{number}.signal").write_text(f"a {number} 5\n")
    lines, files = (sample(source(tmp_path / name), 9).to_pydict() for name in ("lines", "files"))
    assert lines == {"x": [[1.0, 2.0], [3.0]] * 2, "kind": ["sine", "square"] * 2, "label": ["even"] * 2 + ["odd"] * 2}
    assert files == {
        "x": [[0.0, 5.0], [1.0, 5.0]] * 2,
        "kind": ["sine"] * 4,
        "label": ["even"] * 2 + ["odd"] * 2,
    }


def test_a_format_may_return_sql_and_never_replaces_a_built_in_one(tmp_path):
    for name in ("t.psv", "t.csv"):
        (tmp_path / name).write_text("a,b,c|d\n1,2,3|4\n")
    assert list(column_types(source(tmp_path / "t.psv"))) == ["a,b,c", "d"]
    assert list(column_types(source(tmp_path / "t.csv"))) == ["a", "b", "c|d"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.fasta", b"ACGT\n", r"/t.fasta: cannot be read: line 1: letters before the first line with >; fix or repl"),
        ("t.fasta", b">\xff\n", r"/t.fasta: cannot be read: 'utf-8' codec can't decode .*; fix or replace the file"),
        ("t.signal", b"\n", r"/t.signal: has no rows; give a file with a row per sequence"),
        ("t.signal", b"c 1\n", r"/t.signal: cannot be read: KeyError\('c'\); fix or replace the file"),
        ("t.fasta.zst", b"ACGT\n", r"/t.fasta.zst: cannot be read: "),
        ("t.unknown", b"ACGT\n", r"^broken: the plugin otherformats.missing:Nothing of otherformats 1.0 cannot be imp"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught, SourceReader(source(tmp_path / name)) as reader:
        list(reader.read(LETTERS))
    assert "\n" not in str(caught.value)


def test_files_of_different_columns_are_named(tmp_path):
    (tmp_path / "a.signal").write_text("a 1\n")
    (tmp_path / "b.signal").write_text("a\n")
    with pytest.raises(InputError, match=r"b.signal: has the columns x .*null.*, but .*a.signal has x .*double"):
        sample(source(tmp_path / "*.signal"), 1)


def test_endings_of_packages_are_listed_with_the_others(monkeypatch, tmp_path, packages):
    metadata = packages / "otherformats-1.0.dist-info" / "entry_points.txt"
    metadata.write_text("[seqclf.formats]\nsignal = otherformats.other:Signal\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # another path, so that packages are looked up again
    (tmp_path / "t.unknown").write_text("x")
    with pytest.raises(InputError, match=r"'.unknown'; give .arrow, .csv, .fa, .fasta, .feather, .*, .signal, "):
        sample(source(tmp_path / "t.unknown"), 1)
    metadata.write_text("[seqclf.formats]\nsignal = otherformats.other:NO_FORMAT\n")
    monkeypatch.syspath_prepend(str(tmp_path / "again"))
    with pytest.raises(InputError, match=r"signal: the plugin otherformats.other:NO_FORMAT is no seqclf\.data\..*Form"):
        sample(source(tmp_path / "t.unknown"), 1)


def test_a_url_of_a_format_that_duckdb_does_not_read_is_refused():
    with pytest.raises(InputError, match=r"data.train=https://x.org/t.fasta: '.fasta' is read from local files; downl"):
        sample(source("https://x.org/t.fasta"), 1)


def test_each_ending_belongs_to_one_built_in_format():
    for only_in_class_folders in (False, True):
        formats = [entry for entry in builtin_formats() if entry.only_in_class_folders == only_in_class_folders]
        endings = [ending for entry in formats for ending in entry.endings]
        assert len(set(endings)) == len(endings) and all(ending == ending.lower() for ending in endings)
