"""Progress of a training run on the terminal: epoch, loss, and the time left over all epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Timer

from seqclf.batching.datamodule import Batch
from seqclf.system import progress

NOTE_INTERVAL_S = 1.0  # between looks at the loss, each of which waits for the GPU


class TrainingProgress(Callback):
    """Counts the batches of all epochs in a progress line. Epochs are numbered from 1.

    The line is there inside of `shown()`:

    ```python
    bar = TrainingProgress()
    trainer = pl.Trainer(max_epochs=3, callbacks=[bar], enable_progress_bar=False)
    with bar.shown():
        trainer.fit(task, datamodule=batches)
    ```
    """

    def __init__(self) -> None:
        self.stage: progress.Stage | None = None
        self.noted = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line until the end of the block, however it ends."""
        with progress.stage("training", unit="batches", summary=False) as self.stage:
            try:
                yield
            finally:
                self.stage = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if self.stage is not None:
            self.stage.total = _batches_left(trainer)
            callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
            timers = [entry for entry in callbacks if isinstance(entry, Timer)]  # trainer.max_time is one
            limits = [limit for timer in timers if (limit := timer.time_remaining()) is not None]
            if limits:
                self.stage.share = lambda: self._share(min(limits))

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._name_epoch(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if self.stage is None:
            return
        self.stage.advance()
        now = time.monotonic()
        if now - self.noted > NOTE_INTERVAL_S:
            self.noted = now
            self.stage.note = f"loss {float(task.step_loss):.4f}"

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._name_epoch(trainer, ", validation")

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._name_epoch(trainer)

    def _name_epoch(self, trainer: pl.Trainer, part: str = "") -> None:
        if self.stage is not None:
            of = f" of {trainer.max_epochs}" if trainer.max_epochs and trainer.max_epochs > 0 else ""
            self.stage.title = f"epoch {trainer.current_epoch + 1}{of}{part}"

    def _share(self, seconds: float) -> float | None:
        """Return the completed share of the limit that is reached first: all batches, or `seconds` of training."""
        if self.stage is None:
            return None
        of_batches = self.stage.completed / self.stage.total if self.stage.total else 0.0
        return max(of_batches, self.stage.seconds / seconds)


def _batches_left(trainer: pl.Trainer) -> float | None:
    """Return the number of batches that are still to be trained on. None if no limit is known."""
    batches = trainer.num_training_batches
    done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        limits.append(trainer.max_epochs * batches)
    if trainer.max_steps > 0:
        limits.append(trainer.max_steps * trainer.accumulate_grad_batches)
    total = min(limits, default=math.inf)
    return total - done if math.isfinite(total) and total > done else None
