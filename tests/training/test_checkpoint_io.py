"""Writing of checkpoints: complete, or the earlier one stays."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from seqclf.errors import InputError
from seqclf.training.checkpoint import AtomicCheckpointIO


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_full_temporary_folder_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    AtomicCheckpointIO().save_checkpoint({"weights": torch.ones(3)}, tmp_path / "new" / "last.ckpt")
    assert torch.load(tmp_path / "new/last.ckpt", weights_only=True)["weights"].tolist() == [1, 1, 1]


def test_a_full_disk_keeps_the_earlier_checkpoint_and_raises_one_line(tmp_path, monkeypatch):
    saved, path = AtomicCheckpointIO(), tmp_path / "last.ckpt"
    saved.save_checkpoint({"step": 1}, path)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError) as refused:
        saved.save_checkpoint({"step": 2}, path)
    assert str(refused.value) == (
        f"{path}: cannot be written (No space left on device); free space there, or name another folder; "
        f"the one before is complete: resume with checkpoint={path}"
    )
    assert torch.load(path, weights_only=True) == {"step": 1} and names(tmp_path) == ["last.ckpt"]


def test_the_new_checkpoint_is_synced_before_it_replaces_the_earlier_one(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("replace"), replace(self, to))[1])
    AtomicCheckpointIO().save_checkpoint({"step": 1}, tmp_path / "last.ckpt")
    assert events == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("state", [{"seen": np.arange(3)}, {"path": Path("x")}, {"function": lambda: None}])
def test_a_state_that_a_checkpoint_cannot_hold_is_refused_and_the_earlier_one_stays(tmp_path, state):
    saved, path = AtomicCheckpointIO(), tmp_path / "last.ckpt"
    saved.save_checkpoint({"step": 1, "callbacks": {"Count": {"seen": torch.ones(3), "names": ["a"]}}}, path)
    with pytest.raises(InputError, match=r"^trainer\.callbacks: the state of one cannot be in a checkpoint \(.+\); "):
        saved.save_checkpoint({"step": 2, "callbacks": {"Count": {}, "Odd": state}}, path)
    assert torch.load(path, weights_only=True)["step"] == 1 and names(tmp_path) == ["last.ckpt"]
