"""`checkpoint=auto`: the checkpoint of a run folder that was trained furthest."""

import shutil

import pytest
import torch

from seqclf.training.best_epoch import checkpoints
from seqclf.training.resume import newest_checkpoint


@pytest.fixture
def trained(fit, task, tmp_path):
    folder = tmp_path / "checkpoints"
    fit(task(), callbacks=checkpoints(folder), max_epochs=1)
    return folder


def test_the_end_of_an_epoch_is_newer_than_its_validation(trained):
    assert newest_checkpoint(trained) == trained / "last.ckpt"


def test_the_furthest_is_chosen_whatever_the_times_of_the_files(trained, fit, task, tmp_path):
    further = tmp_path / "further"
    fit(task(), callbacks=checkpoints(further), max_epochs=2)
    shutil.copy(further / "best.ckpt", trained / "best.ckpt")
    (trained / "last.ckpt").touch()
    assert newest_checkpoint(trained) == trained / "best.ckpt"


def test_a_damaged_one_is_passed_over(trained):
    content = (trained / "last.ckpt").read_bytes()
    (trained / "last.ckpt").write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"last\.ckpt"):
        assert newest_checkpoint(trained) == trained / "best.ckpt"


def test_a_model_without_its_training_is_not_resumed(trained):
    state = torch.load(trained / "last.ckpt", weights_only=True)
    torch.save({key: value for key, value in state.items() if key != "loops"}, trained / "best.ckpt")
    with pytest.warns(UserWarning, match=r"best\.ckpt: holds a model, and no training to resume; set start="):
        assert newest_checkpoint(trained) == trained / "last.ckpt"


def test_a_folder_without_one_starts_a_run(tmp_path):
    assert newest_checkpoint(tmp_path / "missing") is None
