"""Callback that saves a checkpoint and ends the training when a signal is received."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint
from torch import distributed

from seqclf.system import signals


class StopOnSignal(Checkpoint):
    """Saves a checkpoint to `path` and ends training after the batch in which a signal arrives, in all ranks alike.

    The fit must run inside a block `with signals.deferred_signals()`. This callback must be the last one, so that all
    others have counted the batch before the checkpoint is saved.
    """

    def __init__(self, path: Path, rank_timeout_s: float):
        self.path, self.rank_timeout = path, timedelta(seconds=rank_timeout_s)
        self.ranks: RankSignals | None = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Lightning's own handler broadcasts between ranks, which may be matched with another collective operation.
        signals.reinstall()
        self.ranks = RankSignals(self.rank_timeout) if trainer.world_size > 1 else None

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled_before():
            self._stop(trainer)

    def on_validation_batch_end(self, trainer: Any, task: Any, *arguments: Any) -> None:
        # Several ranks stop only at the end of the epoch, because they may validate different numbers of batches.
        if trainer.sanity_checking or trainer.world_size > 1 or not signals.requested():
            return
        # Reset the validation counts to the first validation batch, so that a resumed run repeats the whole validation.
        for counts in vars(trainer.fit_loop.epoch_loop.val_loop.batch_progress).values():
            if hasattr(counts, "started"):
                counts.ready = counts.started = 1
                counts.processed = counts.completed = 0
        self._stop(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if signals.requested() if self.ranks is None else self.ranks.signalled():
            self._stop(trainer)  # not each epoch has a checkpoint

    def _stop(self, trainer: pl.Trainer) -> NoReturn:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.path, weights_only=False)
        signals.end()


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
        """Return True if any rank had a signal at the previous call."""
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
