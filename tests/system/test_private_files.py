"""Copies of the user's data are readable for their owner alone, and replaced files keep their mode."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from support.untrained_task import data_options

from seqclf.bundle.drift import RowSample
from seqclf.bundle.journal import open_journal
from seqclf.bundle.outputs import open_output
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.runs.bundle_export import _replace
from seqclf.system.atomic_files import atomic_replace, make_private, private_folder, write_output
from seqclf.system.run_folder import remove_outputs

MIXED = "tokens,label\r\n[1],a\n[2],b\n"  # a file whose lines end in two ways is copied
READ = """
import sys, time
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
with SourceReader(Source(sys.argv[1], "input")):
    print("open", flush=True)
    time.sleep(60)
"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.csv"
    path.write_bytes(MIXED.encode())
    path.chmod(0o600)
    return path


def test_a_replaced_file_keeps_its_mode(tmp_path):
    path = tmp_path / "scores.csv"
    for kept in (0o600, 0o640, 0o444):
        path.touch()
        path.chmod(kept)
        with atomic_replace(path) as unfinished:
            assert mode(unfinished) == 0o600
        assert mode(path) == kept
    write_output(tmp_path / "new.csv", "")
    (tmp_path / "plain.csv").touch()
    assert mode(tmp_path / "new.csv") == mode(tmp_path / "plain.csv")


def test_copies_of_a_source_are_private(temporary, mixed):
    with SourceReader(Source(str(mixed), "input")) as reader:
        (folder,) = temporary.iterdir()
        assert mode(folder) == 0o700 and list(folder.rglob("mixed.csv"))
        assert Path(reader.query_row("SELECT current_setting('temp_directory')")[0]).parent == folder
        assert reader.count_rows() == 2
    assert not list(temporary.iterdir())


def test_copies_of_a_killed_process_are_removed(temporary, mixed):
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-c", READ, mixed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGKILL)
    (left,) = temporary.iterdir()
    assert list(left.rglob("mixed.csv"))
    with SourceReader(Source(str(mixed), "input")):
        assert left not in temporary.iterdir()


def test_a_cache_that_cannot_be_written_is_no_reason_to_read_nothing(temporary, mixed, tmp_path):
    (tmp_path / "file").touch()
    with SourceReader(Source(str(mixed), "input", spill=str(tmp_path / "file" / "cache"))) as reader:
        assert reader.count_rows() == 2 and list(temporary.iterdir())


def test_prepared_data_is_private(tmp_path):
    (tmp_path / "train.csv").write_text("events,label\n" + "[1],a\n[2],b\n" * 10)
    prepare(data_options(tmp_path / "cache", train=str(tmp_path / "train.csv")))
    entries = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert entries and {mode(path) for path in entries} == {0o700}


def test_the_journal_of_a_prediction_is_private(tmp_path):
    with open_journal(str(tmp_path / "out.csv"), {}, RowSample(None)) as journal:
        assert mode(journal.folder) == 0o700


@pytest.mark.parametrize(
    ("umask", "earlier", "expected"), [(0o077, None, 0o700), (0o022, None, 0o755), (0, 0o700, 0o700)]
)
def test_a_folder_of_parts_has_the_mode_that_the_user_gave(tmp_path, umask, earlier, expected):
    if earlier is not None:
        (tmp_path / "parts").mkdir(mode=earlier)
    before = os.umask(umask)
    try:
        with open_output(f"{tmp_path}/parts/", pa.schema({"id": pa.int64()})) as writer:
            writer.write_batch(pa.record_batch({"id": [1]}))
    finally:
        os.umask(before)
    assert mode(tmp_path / "parts") == expected


@pytest.mark.parametrize("swaps", [True, False])
def test_a_replaced_bundle_keeps_the_mode_of_its_folder(tmp_path, monkeypatch, swaps):
    if not swaps:
        monkeypatch.setattr("seqclf.runs.bundle_export.exchange", lambda *_: False)
    for name in ("new", "bundle"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    (tmp_path / "bundle").chmod(0o700)
    _replace(tmp_path / "new", tmp_path / "bundle", tmp_path / "earlier")
    assert mode(tmp_path / "bundle") == 0o700 and (tmp_path / "bundle" / "new").is_file()


def test_a_link_in_a_run_folder_is_removed_without_what_it_leads_to(tmp_path):
    for name in ("run", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere" / "model.onnx").touch()
    (tmp_path / "run" / "bundle").symlink_to(tmp_path / "elsewhere")
    remove_outputs(tmp_path / "run", ["bundle", "report.html"])
    assert not list((tmp_path / "run").iterdir()) and (tmp_path / "elsewhere" / "model.onnx").is_file()


@pytest.mark.parametrize(("shared", "expected"), [(0o755, 0o700), (0o775, 0o770), (0o2770, 0o770), (0o1777, 0o700)])
def test_the_entries_of_a_shared_cache_are_shared(tmp_path, shared, expected):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(shared)
    private_folder(cache / "objects")
    (cache / "entry").mkdir()
    make_private(cache / "entry", cache)
    assert mode(cache / "objects") == mode(cache / "entry") == expected


@pytest.mark.parametrize("shared", [0o755, 0o775])
def test_a_folder_is_closed_before_it_is_opened_to_a_group(tmp_path, monkeypatch, shared):
    """A process may be killed between the two."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(shared)
    monkeypatch.setattr("seqclf.system.atomic_files.make_private", lambda *_: None)
    before = os.umask(0o002)
    try:
        private_folder(tmp_path / "cache" / "objects")
        private_folder(tmp_path / "new" / "cache" / "objects")
    finally:
        os.umask(before)
    assert mode(tmp_path / "cache" / "objects") == mode(tmp_path / "new" / "cache" / "objects") == 0o700
    assert mode(tmp_path / "new" / "cache") == 0o775


def test_file_systems_without_modes_take_files(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError

    (tmp_path / "scores.csv").touch()
    monkeypatch.setattr(os, "chmod", refuse)
    write_output(tmp_path / "scores.csv", "new")
    private_folder(tmp_path / "cache")
    assert (tmp_path / "scores.csv").read_text() == "new" and (tmp_path / "cache").is_dir()
