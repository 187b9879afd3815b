"""Callbacks that write the checkpoints of the best and of the latest epoch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

from seqclf.training.checkpoint_io import write_checkpoint
from seqclf.training.module import MONITORED


class BestCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` of the best epoch, which a run resumed in another folder brings along.

    `resumed`: the checkpoint file that the run resumes. Its folder may have been moved since it was written.
    """

    def __init__(self, resumed: Path | None, **options: Any):
        super().__init__(**options)
        self.resumed = resumed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        best = Path(state_dict["best_model_path"])
        if self.resumed is not None and (self.resumed.parent / best.name).is_file():
            best = self.resumed.parent.resolve() / best.name
        target = str(Path(str(self.dirpath)) / best.name)
        if state_dict["best_model_path"] and not best.is_file():
            warnings.warn(f"{best}: is missing; the best epoch is chosen among those to come", stacklevel=2)
            return
        if best.is_file() and state_dict["best_model_path"] != target:
            _copy(best, Path(target))
            paths = {"dirpath": self.dirpath, "best_model_path": target, "kth_best_model_path": target}
            state_dict = {**state_dict, **paths, "best_k_models": {target: state_dict["best_model_score"]}}
        super().load_state_dict(state_dict)


class LastCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` of the latest state, which in another folder starts anew.

    The files in its state belong to the run that is resumed, and must not be deleted.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["dirpath"] != str(self.dirpath):
            no_paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), "")
            state_dict = {**state_dict, **no_paths, "dirpath": str(self.dirpath), "best_k_models": {}}
        super().load_state_dict(state_dict)


@rank_zero_only
def _copy(source: Path, target: Path) -> None:
    if source != target:
        write_checkpoint(target, source.read_bytes())


def checkpoints(folder: Path, every: int | None = None, resumed: Path | None = None) -> list[ModelCheckpoint]:
    """Return callbacks that write `best.ckpt`, of the best epoch, and `last.ckpt`, of the latest one.

    `every`: write `last.ckpt` after each so many optimizer steps too. `resumed`: the checkpoint that the run resumes.
    """
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    best = BestCheckpoint(
        resumed, filename="best", monitor=MONITORED, mode="max", save_on_train_epoch_end=True, **common
    )
    # Separate callbacks, because Lightning's `save_last` saves only where the best is saved too.
    last = LastCheckpoint(filename="last", monitor=None, save_on_train_epoch_end=True, **common)
    if every is None:
        return [best, last]
    inside = LastCheckpoint(filename="last", monitor=None, every_n_train_steps=every, save_top_k=1, **common)
    return [best, last, inside]
