"""Callbacks of a training: checkpoints of the best and of the latest epoch, early stopping, and a stop on signals."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch import distributed

from seqclf.errors import InputError
from seqclf.system import signals
from seqclf.system.atomic_files import REMEDY, write_bytes
from seqclf.training.module import MONITORED

# Writing of checkpoint files, each replaced at once or not at all.


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint next to its target and renames it, so the earlier one stays until the new one is complete.

    Lightning's default writes to $TMPDIR and moves: across file systems that is a copy, which a kill truncates.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        buffer = io.BytesIO()  # torch's writer does not pass on the error of a full disk
        try:
            torch.save(checkpoint, buffer)
        except Exception as error:  # whatever the state of a callback raises; a buffer in memory raises nothing
            raise InputError(
                None,
                f"a callback puts into checkpoints what cannot be saved ({error})",
                "use plain values and tensors",
            ) from None
        _require_plain(buffer, checkpoint)
        write_checkpoint(Path(path), buffer.getbuffer())


def _require_plain(content: io.BytesIO, checkpoint: Mapping[str, Any]) -> None:
    """Raise InputError unless a checkpoint can be read with `weights_only=True`.

    Only classes of another package can spoil that, and the run would notice it after its last epoch.
    """
    if not _objects(content):
        return
    for name, state in checkpoint.get("callbacks", {}).items():
        buffer = io.BytesIO()
        torch.save(state, buffer)
        if objects := _objects(buffer):
            raise InputError(
                "trainer.callbacks",
                f"the state of {name} holds {objects[0]}, which a checkpoint cannot hold",
                "return plain values and tensors from its state_dict",
            )
    raise InputError(
        None,
        f"a callback puts {_objects(content)[0]} into checkpoints, which cannot hold it",
        "use plain values and tensors",
    )


def _objects(content: io.BytesIO) -> list[str]:
    """Return the names of the classes and functions that unpickling would have to call."""
    content.seek(0)
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(content))


def write_checkpoint(path: Path, content: bytes | memoryview) -> None:
    """Replace a checkpoint file by `content`. Raises InputError, with the file to resume from, if the disk refuses."""
    try:
        write_bytes(path, content)
    except OSError as error:
        last = path.with_name("last.ckpt")  # not the best one, which may be many epochs behind
        advice = f"; the one before is complete: resume with checkpoint={last}" if last.is_file() else ""
        raise InputError(path, f"cannot be written ({error.strerror or error})", f"{REMEDY}{advice}") from None


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
    """Return callbacks that write `best.ckpt`, of the best validation, and `last.ckpt`, of the latest epoch.

    `every`: write `last.ckpt` after each so many optimizer steps too. `resumed`: the checkpoint that the run resumes.
    """
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    # Where a validation ends, so that the file holds the weights that were validated.
    best = BestCheckpoint(
        resumed, filename="best", monitor=MONITORED, mode="max", save_on_train_epoch_end=False, **common
    )
    # Separate callbacks, because Lightning's `save_last` saves only where the best is saved too.
    last = LastCheckpoint(filename="last", monitor=None, save_on_train_epoch_end=True, **common)
    if every is None:
        return [best, last]
    inside = LastCheckpoint(filename="last", monitor=None, every_n_train_steps=every, save_top_k=1, **common)
    return [best, last, inside]


# Callback that stops training once the validation metric no longer improves.


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Lightning's `EarlyStopping`, which also ends a resumed run that had stopped, unless its patience was raised.

    It has Lightning's name, by which a checkpoint stores its state.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= max(1, self.patience):
            trainer.should_stop = True


def early_stopping(patience: int) -> EarlyStopping:
    """Return a callback that stops training after `patience` validations without a better one."""
    # Checked where a validation ends: an epoch may have none (trainer.check_val_every_n_epoch) or several.
    return EarlyStopping(MONITORED, mode="max", patience=patience, check_on_train_epoch_end=False)


# Callback that ends training at a signal, with a checkpoint to resume from.


class StopOnSignal(Checkpoint):
    """Writes the checkpoint `path` after the batch in which a signal came, and ends training.

    It needs `signals.deferred_signals()` around the fit, and to be the last callback, so that every other one has
    counted the batch before it is saved. All ranks stop at the same batch.
    """

    def __init__(self, path: Path):
        self.path = path
        self.ranks: RankSignals | None = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Lightning's handler broadcasts inside the handler, which can match another collective operation.
        signals.reinstall()
        self.ranks = RankSignals(getattr(trainer.strategy, "_timeout", None)) if trainer.world_size > 1 else None

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled_before():
            self._save(trainer)
            _stop()

    def on_validation_batch_end(self, trainer: Any, task: Any, *arguments: Any) -> None:
        # Several ranks stop at the end of the epoch instead: they may validate different numbers of batches.
        if trainer.sanity_checking or trainer.world_size > 1 or not signals.requested():
            return
        # As if the first validation batch had just begun: from there Lightning validates again when it resumes.
        for progress in vars(trainer.fit_loop.epoch_loop.val_loop.batch_progress).values():
            if hasattr(progress, "started"):
                progress.ready = progress.started = 1
                progress.processed = progress.completed = 0
        self._save(trainer)
        _stop()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled():
            _stop()  # the checkpoint of the epoch has just been written

    def _save(self, trainer: pl.Trainer) -> None:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.path, weights_only=False)


class RankSignals:
    """Lets all ranks know, at the same batch, that one of them got a signal. All ranks call its methods in turn.

    The sum over the ranks runs on the CPU beside the next batch, so that no rank waits for another.
    """

    def __init__(self, timeout: timedelta | None):
        self.group = distributed.new_group(backend="gloo", timeout=timeout)
        self.count = torch.zeros(1)
        self.sum: distributed.Work | None = None

    def signalled_before(self) -> bool:
        """Return True if a rank had got a signal at the previous call."""
        before = self._finish()
        if not before:
            self._begin()
        return before

    def signalled(self) -> bool:
        """Return True if a rank has got a signal by now."""
        before = self._finish()
        self._begin()
        return self._finish() or before

    def _begin(self) -> None:
        self.count = torch.tensor([float(signals.requested())])
        self.sum = distributed.all_reduce(self.count, group=self.group, async_op=True)

    def _finish(self) -> bool:
        if self.sum is None:
            return False
        self.sum.wait()
        self.sum = None
        return bool(self.count > 0)


def _stop() -> NoReturn:
    signals.end()
