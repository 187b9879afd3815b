"""Handling of optimizer steps with non-finite gradients, which end the training or are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.batching.datamodule import Batch
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.training.debugging.batch_rows import row_names
from seqclf.training.debugging.finite_check import SCALED
from seqclf.training.module import SequenceTask

MAX_SKIPPED = 20  # maximum number of consecutive skipped steps; more of them indicate faulty weights or data
MAX_SHOWN = 5  # maximum number of skipped steps that a run reports in the terminal


class NotFiniteSteps(Callback):
    """Checks that the gradients of each optimizer step are finite before the optimizer uses them.

    If `skip` is False, a step with non-finite gradients ends the training. If `skip` is True, such a step is skipped. A
    skipped step does not change the weights or the optimizer state, and its rows do not count in the metrics of the
    epoch. All ranks skip the same steps, because gradients are averaged over the ranks before the check. On a GPU, the
    check waits for the device. If `skip` is False, a run on a GPU therefore checks only the steps that are logged.
    Steps in `16-mixed` precision are not checked, because its loss scaling produces infinite gradients on purpose.

    `splits`: dict name → split; messages take the names of rows from these splits.
    """

    def __init__(self, splits: Mapping[str, Split], skip: bool):
        self.splits = splits
        self.skip = skip
        self.rows: list[np.ndarray] = []  # row indices of the batches since the last optimizer step
        self.skipped = self.skipped_in_a_row = 0

    def setup(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        task.skips_not_finite = self.skip

    def on_train_batch_start(self, trainer: pl.Trainer, task: pl.LightningModule, batch: Batch, batch_idx: int) -> None:
        self.rows.append(batch.ids)

    def on_before_optimizer_step(self, trainer: pl.Trainer, task: Any, optimizer: Any) -> None:
        rows, self.rows = np.concatenate(self.rows), []
        if not self._looks(trainer, task):
            return
        # The weights are read from the optimizer, because iterating over all modules takes as long as computing the
        # norm.
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if not gradients or torch.isfinite(nn.utils.get_total_norm(gradients)):
            self.skipped_in_a_row = 0
            return
        step = f"step {task.global_step + 1} (epoch {task.current_epoch + 1})"
        cause = "the gradient" if torch.isfinite(task.step_loss) else "the loss"
        named = f"of {len(rows)} rows: {row_names(self.splits.get('train'), np.sort(rows))}"
        self.skipped_in_a_row += 1
        if not self.skip or self.skipped_in_a_row > MAX_SKIPPED:
            many = f", as that of the {MAX_SKIPPED} steps before" if self.skip else ""
            raise InputError(
                step,
                f"{cause} {named}, is not finite{many}",
                f"lower optimizer.lr (now {task.optimizer['lr']}) or trainer.gradient_clip_val; debug=nan names the "
                f"module{'' if self.skip else ', runtime.on_nan=skip leaves such steps out'}",
            )
        self.skipped += 1
        if self.skipped <= MAX_SHOWN:
            last = "; later ones are not shown" if self.skipped == MAX_SHOWN else ""
            show_note(f"{step}: {cause} {named}, is not finite; the step is left out{last}")
        for weight in weights:
            weight.grad = None

    def on_train_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if self.skipped:
            show_note(f"{self.skipped} of {trainer.global_step} steps were left out, as they were not finite")

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update({name: int(state_dict[name]) for name in self.state_dict()})

    def _looks(self, trainer: Any, task: SequenceTask) -> bool:
        if trainer.precision == SCALED:
            return False
        return self.skip or task.device.type == "cpu" or (trainer.global_step + 1) % trainer.log_every_n_steps == 0
