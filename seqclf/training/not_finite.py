"""Handling of optimizer steps with non-finite gradients, which end the training or are skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.batching.batches import Batch
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.training.task import SequenceTask

SCALED = "16-mixed"  # Lightning's precision with loss scaling; Lightning then skips steps with infinite gradients
MAX_NAMED = 4  # maximum number of rows that one message names
MAX_SKIPPED = 20  # maximum number of consecutive skipped steps; more of them indicate faulty weights or data
MAX_SHOWN = 5  # maximum number of skipped steps that a run reports in the terminal


class NotFiniteSteps(Callback):
    """Checks that the gradients of each optimizer step are finite before the optimizer uses them.

    A step with others ends the training, or with `skip` is skipped: it changes neither weights nor optimizer state, and
    its rows do not count in the metrics of the epoch. All ranks skip the same steps, because gradients are averaged
    before. On a GPU the check waits for the device, so that without `skip` only the steps that are logged are checked,
    and never `16-mixed`, whose loss scaling produces infinite gradients on purpose. `splits`: for names of rows.
    """

    def __init__(self, splits: Mapping[str, Split], skip: bool):
        self.splits = splits
        self.skip = skip
        self.batches: list[Batch] = []  # since the last optimizer step
        self.skipped = self.skipped_in_a_row = 0

    def setup(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        task.train_metrics.skips_not_finite = self.skip

    def on_train_batch_start(self, trainer: pl.Trainer, task: pl.LightningModule, batch: Batch, batch_idx: int) -> None:
        fields = {name: values for name, values in batch.fields.items() if not name.startswith("frozen/")}
        self.batches.append(batch._replace(fields=fields))

    def on_before_optimizer_step(self, trainer: pl.Trainer, task: Any, optimizer: Any) -> None:
        batches, self.batches = self.batches, []
        if not self._looks(trainer, task):
            return
        # From the optimizer, because iterating over all modules takes as long as computing the norm.
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if not gradients or torch.isfinite(nn.utils.get_total_norm(gradients)):
            self.skipped_in_a_row = 0
            return
        step = f"step {task.global_step + 1} (epoch {task.current_epoch + 1})"
        cause = "the gradient" if torch.isfinite(task.step_loss) else "the loss"
        rows = np.sort(np.concatenate([batch.ids for batch in batches]))
        named = f"of {len(rows)} rows: {row_names(self.splits.get('train'), rows)}"
        first = _first_not_finite(task, batches)
        self.skipped_in_a_row += 1
        if not self.skip or self.skipped_in_a_row > MAX_SKIPPED:
            many = f", as that of the {MAX_SKIPPED} steps before" if self.skip else ""
            remedy = f"lower optimizer.lr (now {task.optimizer['lr']}) or trainer.gradient_clip_val"
            remedy += "" if self.skip else "; runtime.on_nan=skip leaves such steps out"
            problem = f"{cause} {named}, is not finite{many}; the first such value is in {first}"
            raise InputError(step, problem, remedy)
        self.skipped += 1
        if self.skipped <= MAX_SHOWN:
            last = "; later ones are not shown" if self.skipped == MAX_SHOWN else ""
            show_note(f"{step}: {cause} {named}, is not finite, first in {first}; the step is left out{last}")
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


def _first_not_finite(task: SequenceTask, batches: Sequence[Batch]) -> str:
    for batch in batches:
        for name, values in batch.fields.items():
            if not torch.isfinite(values).all():
                return f"the field {name}"
    weights = [(name, weight) for name, weight in task.named_parameters() if weight.grad is not None]
    for name, weight in weights:
        if not torch.isfinite(weight).all():
            return f"the weight {name}"
    wrong = (name for name, weight in weights if not torch.isfinite(weight.grad).all())  # type: ignore[arg-type]
    return f"the gradient of {next(wrong, 'the loss')}"


def row_names(split: Split | None, indices: Sequence[int] | np.ndarray) -> str:
    """Return a text with the first few rows, by number in the file and a different id, and the number of the others.

    >>> import pyarrow as pa
    >>> from seqclf.data.storage.store import Ragged
    >>> sequences = Ragged(np.array([0, 1, 2]), {"token": np.array([1, 2])})
    >>> split = Split(sequences, np.array([0, 1]), pa.array(["3", "b"]), np.array([3, 7]))
    >>> row_names(split, [0, 1]), row_names(None, [0, 1, 2, 3, 4])
    ('row 3, row 7 (id b)', 'row with index 0, row with index 1, row with index 2, row with index 3 and 1 more')
    """
    names = []
    for index in indices[:MAX_NAMED]:
        if split is None:
            names.append(f"row with index {index}")
            continue
        number, row_id = str(split.row_numbers[index]), str(split.ids[index].as_py())
        names.append(f"row {number}" if row_id == number else f"row {number} (id {row_id})")
    more = len(indices) - MAX_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
