"""A full memory and a full disk are one line, which does not blame a file."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from seqclf.config.hints import user_error
from seqclf.data.reading.source_errors import explain_errors
from seqclf.data.reading.sources import Source
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.system.resources import MEMORY_REMEDY

FULL = Path("/dev/full")  # each write fails as on a full disk
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")


@pytest.mark.parametrize(("limit", "remedy"), [(None, MEMORY_REMEDY), ("2MB", "raise data.memory_limit")])
def test_the_remedy_for_a_query_names_the_limit_if_there_is_one(limit, remedy):
    with pytest.raises(InputError) as raised, explain_errors(Source("t.csv", "input", memory_limit=limit)):
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 32 MiB")
    assert raised.value.remedy == remedy and "None" not in raised.value.problem


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_what_a_full_memory_stops_is_one_line(error):
    assert user_error(error).remedy == MEMORY_REMEDY


def run(arguments, **streams):
    return subprocess.run([sys.executable, "-m", "seqclf", *arguments], text=True, **streams)


@needs_full
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["train", "--help"]])
def test_a_full_disk_behind_stdout_is_one_line(arguments):
    with FULL.open("w") as full:
        done = run(arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr.startswith("error: stdout: ") and done.stderr.count("\n") == 1


@needs_full
def test_a_full_disk_behind_stderr_keeps_the_exit_code():
    with FULL.open("w") as full:
        done = run(["predict", "bundle=nowhere", "sequence=[1]"], stderr=full)
    assert done.returncode == 2


class FullStream(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_note_that_cannot_be_shown_ends_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", FullStream())
    show_note("a note")


def test_a_reader_that_ends_early_is_no_error():
    script = f"{sys.executable} -m seqclf train --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stdout_is_no_error():
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m seqclf --version >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
