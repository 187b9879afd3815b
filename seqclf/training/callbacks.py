"""Callbacks of a training run: best and latest checkpoint, early stopping, and a clean stop on signals."""

from __future__ import annotations

import io
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch import distributed

from seqclf.batching.batches import Batch
from seqclf.errors import InputError, first_line
from seqclf.evaluation.smoothed_choice import MONITORED
from seqclf.system import progress, signals
from seqclf.system.atomic_files import REMEDY, write_bytes

# Atomic writing of checkpoint files.


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file in the same folder, then renames it over the previous one.

    Lightning writes to $TMPDIR and moves the file. Between two file systems such a move is a copy, and a killed process
    leaves a truncated copy.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        # Write to a buffer first, because torch.save does not report a full disk when it writes to a file.
        buffer = io.BytesIO()
        try:
            torch.save(checkpoint, buffer)
            buffer.seek(0)
            # `torch.load` with `weights_only=True` would reject such objects, but only after the last epoch.
            refused = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(buffer))
        except Exception as error:  # pickling the state of a callback may raise any exception
            refused = [first_line(error)]
        if refused:
            raise InputError(
                "trainer.callbacks",
                f"the state of one cannot be in a checkpoint ({refused[0]})",
                "return plain values and tensors from its state_dict",
            )
        write_checkpoint(Path(path), buffer.getbuffer())


def write_checkpoint(path: Path, content: bytes | memoryview) -> None:
    """Replace a checkpoint file, or raise an InputError that names the last complete checkpoint to resume from."""
    try:
        write_bytes(path, content)
    except OSError as error:
        last = path.with_name("last.ckpt")  # do not suggest best.ckpt, which may be many epochs old
        advice = f"; the one before is complete: resume with checkpoint={last}" if last.is_file() else ""
        raise InputError(path, f"cannot be written ({error.strerror or error})", f"{REMEDY}{advice}") from None


class BestCheckpoint(ModelCheckpoint):
    """Callback that saves the checkpoint of the best epoch, or without a `monitor` of the last step.

    Without a `monitor`, each validation replaces the checkpoint, so that a killed run has one, and so does the end of
    the training. A run that is resumed (from `resumed`, which may have been moved since it was written) in another
    folder gets a copy of the best checkpoint there.
    """

    def __init__(self, resumed: Path | None, **options: Any):
        super().__init__(**options)
        self.resumed = resumed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not state_dict["best_model_path"]:  # nothing is validated so far
            super().load_state_dict(state_dict)
            return
        saved = Path(state_dict["best_model_path"])
        target = Path(str(self.dirpath)) / saved.name
        places = [] if self.resumed is None else [self.resumed.parent.resolve() / saved.name]
        best = next((path for path in (*places, saved) if path.is_file()), None)
        if best is None:
            if self.monitor is not None:
                warnings.warn(f"{saved}: is missing; the best epoch is chosen among those to come", stacklevel=2)
            return
        _copy(best, target)
        scores = {} if self.monitor is None else {str(target): state_dict["best_model_score"]}
        paths = {"dirpath": self.dirpath, **dict.fromkeys(("best_model_path", "kth_best_model_path"), str(target))}
        super().load_state_dict({**state_dict, **paths, "best_k_models": scores})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # A limit may end the training inside an epoch, or there may be no validation.
        if self.monitor is None:
            self.on_validation_end(trainer, pl_module)


class LastCheckpoint(ModelCheckpoint):
    """Callback that saves the latest checkpoint.

    In another folder, a resumed run forgets the files in its saved state: those of the earlier run must not be deleted.
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


def checkpoints(
    folder: Path,
    every: int | None = None,
    resumed: Path | None = None,
    monitor: str | None = MONITORED,
    epochs: int = 1,
) -> list[ModelCheckpoint]:
    """Return callbacks that write `best.ckpt` after the best validation and `last.ckpt` after each `epochs` epochs.

    `every`: number of optimizer steps between additional writes of `last.ckpt`, None for none. `resumed`: the
    checkpoint file that the run resumes from. `monitor`: the logged value that chooses the best validation, None for
    the last step.
    """
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    # Save `best.ckpt` at the end of a validation, so that the file holds the validated weights.
    best = BestCheckpoint(
        resumed, filename="best", monitor=monitor, mode="max", save_on_train_epoch_end=False, **common
    )
    # `last.ckpt` has its own callback, because Lightning's `save_last` saves only when the best checkpoint is saved
    # too.
    last = LastCheckpoint(filename="last", monitor=None, every_n_epochs=epochs, save_on_train_epoch_end=True, **common)
    if every is None:
        return [best, last]
    inside = LastCheckpoint(filename="last", monitor=None, every_n_train_steps=every, save_top_k=1, **common)
    return [best, last, inside]


# Callback that stops training when the validation metric no longer improves.


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Lightning's `EarlyStopping`, which here also stops a resumed run whose patience is used up.

    The class keeps the name of Lightning's class, under which a checkpoint stores the state of a callback.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= max(1, self.patience):
            trainer.should_stop = True


def early_stopping(patience: int) -> EarlyStopping:
    """Return a callback that stops training after `patience` validations without an improvement."""
    # The check runs at the end of each validation, because an epoch may have several validations or none
    # (trainer.check_val_every_n_epoch).
    return EarlyStopping(MONITORED, mode="max", patience=patience, check_on_train_epoch_end=False)


# Callback that saves a checkpoint and ends training when a signal is received.


class StopOnSignal(Checkpoint):
    """Saves a checkpoint to `path` and ends training after the batch in which a signal arrives, in all ranks alike.

    The fit must run inside a block `with signals.deferred_signals()`. This callback must be the last one, so that all
    others have counted the batch before the checkpoint is saved.
    """

    def __init__(self, path: Path, rank_timeout_s: float):
        self.path, self.rank_timeout = path, timedelta(seconds=rank_timeout_s)
        self.ranks: RankSignals | None = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Lightning's own signal handler broadcasts between ranks. This broadcast may be matched by mistake with another
        # collective operation.
        signals.reinstall()
        self.ranks = RankSignals(self.rank_timeout) if trainer.world_size > 1 else None

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled_before():
            self._save(trainer)
            _stop()

    def on_validation_batch_end(self, trainer: Any, task: Any, *arguments: Any) -> None:
        # A run with several ranks stops only at the end of the epoch, because the ranks may validate different numbers
        # of batches.
        if trainer.sanity_checking or trainer.world_size > 1 or not signals.requested():
            return
        # Reset the validation counts to the first validation batch, so that a resumed run repeats the whole validation.
        for counts in vars(trainer.fit_loop.epoch_loop.val_loop.batch_progress).values():
            if hasattr(counts, "started"):
                counts.ready = counts.started = 1
                counts.processed = counts.completed = 0
        self._save(trainer)
        _stop()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled():
            self._save(trainer)  # not each epoch has a checkpoint
            _stop()

    def _save(self, trainer: pl.Trainer) -> None:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.path, weights_only=False)


class RankSignals:
    """Tells all ranks, at the same batch, whether any rank has received a signal.

    All ranks must call the same methods in the same order. They exchange their signals on the CPU while the next batch
    runs, so that no rank waits for another.
    """

    def __init__(self, timeout: timedelta):
        self.group = distributed.new_group(backend="gloo", timeout=timeout)
        self.count = torch.zeros(1)
        self.sum: distributed.Work | None = None

    def signalled_before(self) -> bool:
        """Return True if any rank had received a signal by the time of the previous call."""
        before = self._finish()
        if not before:
            self._begin()
        return before

    def signalled(self) -> bool:
        """Return True if any rank has received a signal so far."""
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


NOTE_INTERVAL_S = 1.0  # seconds between two updates of the displayed loss; each update waits for the GPU


class TrainingProgress(Callback):
    """Shows a progress line with the number of optimizer steps in all epochs, which are numbered from 1.

    The progress line is visible inside a `shown()` block:

    ```python bar = TrainingProgress() trainer = pl.Trainer(max_epochs=3, callbacks=[bar], enable_progress_bar=False)
    with bar.shown():
        trainer.fit(task, datamodule=batches)
    ```
    """

    def __init__(self) -> None:
        self.stage = progress.Stage("training")  # placeholder that is not displayed; `shown()` replaces it
        self.first_step = 0
        self.noted = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress line until the block ends, even if the block raises an error."""
        with progress.stage("training", unit="steps", summary=False) as self.stage:
            yield

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.first_step = trainer.global_step
        steps = trainer.estimated_stepping_batches
        self.stage.total = steps - self.first_step if math.isfinite(steps) else None

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self._name_epoch(trainer)
        self.stage.completed = trainer.global_step - self.first_step
        now = time.monotonic()
        if now - self.noted > NOTE_INTERVAL_S:
            self.noted = now
            self.stage.note = f"loss {float(task.step_loss):.4f}"

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._name_epoch(trainer, ", validation")

    def _name_epoch(self, trainer: pl.Trainer, part: str = "") -> None:
        of = f" of {trainer.max_epochs}" if trainer.max_epochs and trainer.max_epochs > 0 else ""
        self.stage.title = f"epoch {trainer.current_epoch + 1}{of}{part}"
