"""Prepared data is reused while everything it was made from is the same, and only if it is whole."""

import importlib
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import LABELS, simple, write

from seqclf.data import prepare_data as preparation
from seqclf.data.prepare_data import prepare
from seqclf.data.storage import cache as cache_module
from seqclf.errors import InputError


def test_another_file_of_the_same_size_and_time_is_read_again(options, tmp_path):
    path = tmp_path / "t.csv"
    rows = [(1 + row % 3, "ab"[row % 2]) for row in range(20)]

    def again(rows):
        path.write_text("x,y\n" + "".join(f'"[{token}, 2]",{label}\n' for token, label in rows))
        os.utime(path, ns=(10**18, 10**18))
        return prepare(options(train=path, label="y", cache_dir=tmp_path / "cache"))

    swapped = [(token, {"a": "b", "b": "a"}[label]) for token, label in rows]
    first, second = again(rows), again(swapped)
    assert not second.reused and first.digest != second.digest


@pytest.mark.parametrize("role", ["labels", "vectors"])
def test_changed_label_tables_and_word_vectors_make_the_cache_stale(options, tmp_path, role):
    texts = {"text": ["one two", "two one"] * 10, "id": [f"r{row}" for row in range(20)]}
    other_file = tmp_path / "other_file.csv"
    if role == "vectors":
        data_options = {"fields": {"text": {"kind": "text", "vectors": str(other_file)}}}
        train = write(tmp_path / "t.parquet", {**texts, "y": LABELS})
        contents = ["one 1 2\ntwo 3 4\n", "one 1 2\ntwo 3 5\n"]
    else:
        data_options = {"labels": str(other_file), "id": "id", "fields": {"text": "text"}}
        train = write(tmp_path / "t.parquet", texts)
        contents = ["id,y\n" + "".join(f"r{row},{'ab'[(row + shift) % 2]}\n" for row in range(20)) for shift in (0, 1)]
    reused = []
    for content in contents:
        other_file.write_text(content)
        os.utime(other_file, ns=(10**18, 10**18))
        reused.append(prepare(options(train=train, label="y", cache_dir=tmp_path / "cache", **data_options)).reused)
    assert reused == [False, False]


def grow(path):
    write(path, simple(more=LABELS))


def swap(path):
    """Replace a file by another of the same size and time, as `rsync --times` does."""
    times = path.stat()
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes()[::-1])
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


def age(path):
    os.utime(path, ns=(1, 1))


def test_data_that_several_need_at_once_is_prepared_by_one(options, tmp_path, monkeypatch):
    """The ranks of a training start together."""
    path = write(tmp_path / "t.parquet", simple())
    data_options = options(train=path, label="label", cache_dir=tmp_path / "cache")
    build, built, prepared = preparation.build_dataset, [], []

    def build_slowly(*arguments):
        built.append(threading.get_ident())
        time.sleep(0.1)
        build(*arguments)

    monkeypatch.setattr(preparation, "build_dataset", build_slowly)
    ranks = [threading.Thread(target=lambda: prepared.append(prepare(data_options))) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(built) == 1 and sorted(dataset.reused for dataset in prepared) == [False, True, True]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [prepared[0].folder.name], "no lock is left"


def meanwhile(monkeypatch, change):
    """Let `change` happen while a preparation runs, after it has read the files."""
    build_dataset = preparation.build_dataset

    def changed(*arguments):
        build_dataset(*arguments)
        change()

    monkeypatch.setattr(preparation, "build_dataset", changed)


@pytest.mark.parametrize("change", [grow, swap, age, Path.unlink])
@pytest.mark.parametrize("name", ["t.parquet", "second.parquet"])
def test_a_file_that_changes_while_it_is_read_stops_the_run(options, tmp_path, monkeypatch, change, name):
    paths = [write(tmp_path / file, simple()) for file in ("t.parquet", "second.parquet")]
    meanwhile(monkeypatch, lambda: change(tmp_path / name))
    with pytest.raises(
        InputError, match=rf"{name}: a file of the data changed while it was read; run again, on a copy if it grows"
    ):
        prepare(options(train=paths[0], test=paths[1], label="label", cache_dir=tmp_path / "cache"))
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.parametrize("more", [".csv", ".txt"])
def test_a_file_that_appears_while_a_folder_is_read_stops_the_run(options, tmp_path, monkeypatch, more):
    (tmp_path / "texts").mkdir()
    for label in "ab":
        (tmp_path / f"texts/{label}.txt").write_text("one two\n" * 10)
    meanwhile(monkeypatch, lambda: (tmp_path / f"texts/c{more}").write_text("one\n"))
    with pytest.raises(InputError, match=r"texts: a file of the data changed while it was read"):
        prepare(options(train=tmp_path / "texts", label="label", cache_dir=tmp_path / "cache"))


@pytest.mark.parametrize("change", [lambda path: path.chmod(0o600), lambda path: os.link(path, f"{path}.backup")])
def test_a_chmod_or_a_hard_link_while_files_are_read_stops_nothing(options, tmp_path, monkeypatch, change):
    path = write(tmp_path / "t.parquet", simple())
    path.chmod(0o644)
    meanwhile(monkeypatch, lambda: change(path))
    assert not prepare(options(train=path, label="label", cache_dir=tmp_path / "cache")).reused


def test_another_format_or_library_makes_the_cache_stale(options, tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", simple())
    data_options = options(train=path, label="label", cache_dir=tmp_path / "cache")
    assert [prepare(data_options).reused for _ in range(2)] == [False, True]
    monkeypatch.setattr(cache_module, "FORMAT", -1)
    assert not prepare(data_options).reused
    monkeypatch.setattr(np, "__version__", "other")
    assert not prepare(data_options).reused


GENERATOR = """
import pyarrow as pa, pyarrow.parquet as pq
{decorator}
def write(folder, rows):
    for split, count in rows.items():
        table = pa.table({{"x": [[{token}, row % 5] for row in range(count)], "y": ["a", "b"] * (count // 2)}})
        pq.write_table(table, folder / f"{{split}}.parquet")
"""


@pytest.mark.parametrize("decorator", ["", "import decoration\n@decoration.logged"])
def test_generated_data_is_made_again_when_its_code_changes(options, tmp_path, monkeypatch, decorator):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    data_options = options(
        generator={"_target_": "made_up.write", "rows": {"train": 20, "validation": 10, "test": 10}},
        label="y",
        fields={"x": "category"},
        cache_dir=tmp_path / "cache",
    )

    wrapped = "lambda *given, **named: do(*given, **named)"
    code = f"import functools\ndef logged(do):\n    return functools.wraps(do)({wrapped})"
    (tmp_path / "decoration.py").write_text(code)

    def digest(token):
        (tmp_path / "made_up.py").write_text(GENERATOR.format(token=token, decorator=decorator))
        sys.modules.pop("made_up", None)
        importlib.invalidate_caches()
        return prepare(data_options).digest

    assert digest(1) == digest(1) != digest(2)


def test_a_generator_does_not_replace_a_file_that_is_named(options, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_up_too.py").write_text(GENERATOR.format(token=1, decorator=""))
    own = tmp_path / "own.parquet"
    pq.write_table(pa.table({"x": [[7], [8], [9]], "y": ["a", "b", "a"]}), own)
    data_options = options(
        generator={"_target_": "made_up_too.write", "rows": {"train": 20, "validation": 10, "test": 10}},
        test=str(own),
        label="y",
        fields={"x": "category"},
        cache_dir=tmp_path / "cache",
    )
    rows = {name: len(split.sequences) for name, split in prepare(data_options).splits.items()}
    assert rows == {"train": 20, "validation": 10, "test": 3}


def test_a_file_url_is_a_file(options, tmp_path):
    path = write(tmp_path / "t.parquet", simple())
    data_options = options(train=f"file://{path}", label="label", cache_dir=tmp_path / "cache")
    assert [prepare(data_options).reused for _ in range(2)] == [False, True]
    write(path, simple(label=LABELS[::-1]))
    assert not prepare(data_options).reused
