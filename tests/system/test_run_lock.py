"""A run folder belongs to one run."""

import fcntl
import multiprocessing
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from seqclf.errors import InputError
from seqclf.system.atomic_files import atomic_replace, write_output
from seqclf.system.run_folder import LOCK, RANKS, claim_run_folder, is_first_rank, locked

HOLDER = """
import sys, time
from pathlib import Path
from seqclf.system.run_folder import claim_run_folder
with claim_run_folder(Path(sys.argv[1]), None, False):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(run):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, run], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def no_rank(monkeypatch):
    for name in ("RANK", *RANKS):
        monkeypatch.delenv(name, raising=False)


def test_the_folder_of_a_live_run_is_refused_and_that_of_a_killed_one_is_free(tmp_path):
    run, process = tmp_path / "run", start_holder(tmp_path / "run")
    (run / "config.yaml").write_text("of the live run")
    refusal = r"hydra\.run\.dir=.*run: another run holds this folder; wait"
    with pytest.raises(InputError, match=refusal), claim_run_folder(run, None, True):
        pass
    assert files(run) == [LOCK, "config.yaml"], "a refused run deletes nothing"
    process.kill()
    process.communicate()
    with claim_run_folder(run, None, False):
        assert LOCK in files(run)
    assert files(run) == ["config.yaml"]


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    fork = multiprocessing.get_context("fork")
    started, stop = fork.Event(), fork.Event()

    def wait():
        started.set()
        stop.wait()

    with locked(tmp_path):
        child = fork.Process(target=wait, daemon=True)
        child.start()
        assert started.wait(30)
        other = os.open(tmp_path / LOCK, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the block released its lock
    os.close(other)
    stop.set()
    child.join()


@pytest.mark.parametrize("kind", ["symbolic link", "link to no file", "hard link", "folder"])
def test_a_lock_changes_no_file_of_the_user(tmp_path, kind):
    run, notes = tmp_path / "run", tmp_path / "notes.txt"
    run.mkdir()
    notes.write_text("of the user")
    match kind:
        case "symbolic link":
            (run / LOCK).symlink_to(notes)
        case "link to no file":
            (run / LOCK).symlink_to(tmp_path / "absent")
        case "hard link":
            (run / LOCK).hardlink_to(notes)
        case "folder":
            (run / LOCK).mkdir()
    refused = pytest.raises(InputError, match=r"^hydra\.run\.dir=.*: cannot be written ")
    with nullcontext() if kind == "hard link" else refused, locked(run):
        pass
    assert notes.read_text() == "of the user" and not (tmp_path / "absent").exists()


def test_a_run_folder_may_be_a_link_to_a_folder(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with claim_run_folder(tmp_path / "run", None, False):
        assert files(tmp_path / "disk") == [LOCK]
    (tmp_path / "disk").rmdir()
    with pytest.raises(InputError) as caught, locked(tmp_path / "run"):
        pass
    assert caught.value.where == f"hydra.run.dir={tmp_path / 'run'}"


def test_files_of_the_user_in_a_run_folder_stay(tmp_path):
    """Such as those of the working folder: `hydra.run.dir=.`."""
    names = [".lock", ".metrics.json.0123abcd.part", ".movie.mkv.part", "checkpoints/.last.ckpt.part"]
    (tmp_path / "checkpoints").mkdir()
    for name in names:
        (tmp_path / name).write_text("of the user")
    with claim_run_folder(tmp_path, None, False):
        write_output(tmp_path / "metrics.json", "{}")
    assert files(tmp_path) == [*names, "metrics.json"]
    assert all((tmp_path / name).read_text() == "of the user" for name in names)


def test_what_a_killed_run_left_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for path in (tmp_path / "metrics.json", tmp_path / "checkpoints" / "last.ckpt"):
        with atomic_replace(path) as unfinished:
            left = unfinished.name
        (path.parent / left).write_text("half")
        path.unlink()
    assert len(files(tmp_path)) == 2
    with claim_run_folder(tmp_path, None, False):
        assert files(tmp_path) == [LOCK]


@pytest.mark.parametrize("left", ["metrics.json", "checkpoints/last.ckpt"])
def test_a_folder_with_results_is_refused_unless_it_is_resumed_or_overwritten(tmp_path, left):
    run, last = tmp_path / "run", tmp_path / "run" / "checkpoints" / "last.ckpt"
    (run / left).parent.mkdir(parents=True)
    (run / left).write_text("of days of training")
    (tmp_path / "other/checkpoints").mkdir(parents=True)
    (tmp_path / "other/checkpoints/last.ckpt").touch()
    for checkpoint in (None, str(tmp_path / "other/checkpoints/last.ckpt")):
        refusal = rf"run: holds a run already \({left}\); name another folder, .*overwrite=tr"
        with pytest.raises(InputError, match=refusal), claim_run_folder(run, checkpoint, False):
            pass
    resumed = (run, str(last), False)
    with (
        claim_run_folder(*resumed),
        pytest.raises(InputError, match="another run holds this folder"),
        claim_run_folder(*resumed),
    ):
        pass
    with claim_run_folder(run, None, True):
        pass
    assert files(run) == [left]


def test_a_run_that_ends_before_training_leaves_no_files(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(SystemExit), claim_run_folder(run, None, False):
        for name in ("config.yaml", "quarantine.jsonl"):
            (run / name).touch()
        raise SystemExit(143)
    assert files(run) == []


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"RANK": "4", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),
    ],
)
def test_other_ranks_belong_to_the_run_of_the_first(tmp_path, monkeypatch, environment, first):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_rank() == first
    (tmp_path / "metrics.json").touch()
    if not first:
        with locked(tmp_path), claim_run_folder(tmp_path, None, False):
            pass
