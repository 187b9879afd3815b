"""Callback that ends training at a signal, with a checkpoint to resume from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from seqclf.system import signals


class StopOnSignal(Checkpoint):
    """Writes the checkpoint `path` after the batch in which a signal came, and ends training.

    It needs `signals.deferred_signals()` around the fit, and to be the last callback, so that every other one has
    counted the batch before it is saved. All ranks stop at the same batch.
    """

    def __init__(self, path: Path):
        self.path = path

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Lightning's handler broadcasts inside the handler, which can match another collective operation.
        signals.reinstall()

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if _any_rank_signalled(trainer):
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
        if _any_rank_signalled(trainer):
            _stop()  # the checkpoint of the epoch has just been written

    def _save(self, trainer: pl.Trainer) -> None:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.path, weights_only=False)


def _any_rank_signalled(trainer: pl.Trainer) -> bool:
    """Return True if any rank got a signal. On several ranks this is a collective operation."""
    return trainer.strategy.reduce_boolean_decision(signals.requested(), all=False)


def _stop() -> NoReturn:
    signals.end()
