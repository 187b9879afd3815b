"""Callback that stops training at the first non-finite value, and names the module and the rows that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import lightning.pytorch as pl
import numpy as np
from torch.utils.hooks import RemovableHandle

from seqclf.batching.datamodule import Batch
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.training.debugging.module_checks import Finding, ForwardCheck, GradientCheck
from seqclf.training.debugging.module_hooks import (
    Debugger,
    ModuleHooks,
    affected_rows,
    is_finite,
    kinds,
    longest_of,
    row_names,
)

LARGE = 1e4  # magnitudes of activations and weights that a training which does not diverge stays far below
SCALED = "16-mixed"  # precision in which steps with infinite gradients are skipped, to find the scale of the loss


class FiniteCheck(Debugger):
    """Stops at the first NaN or infinity in inputs, weights, outputs or gradients. Steps take 1.7 times as long.

    The InputError names the step, the module, the kind of value, and the rows of the batch. `splits`: by name, for the
    numbers and ids of rows; without them, those of the trainer's data module. It works in any Trainer, and with batches
    other than `Batch`, whose rows it does not know::

        trainer = pl.Trainer(max_epochs=5, callbacks=[FiniteCheck()])
        trainer.fit(task, datamodule=SequenceDataModule(dataset.splits))

    >>> FiniteCheck().summary()
    'all values were finite in 0 batches'
    """

    def __init__(self, splits: Mapping[str, Split] | None = None):
        self.splits = splits
        self.forward = ForwardCheck(self._run, self._fail)
        self.gradients = GradientCheck()
        self.batches = 0
        self.weight_hooks: list[RemovableHandle] = []
        self.trainer: Any = None
        self.task: Any = None

    def summary(self) -> str:
        return f"all values were finite in {self.batches:,} batches"

    def make_hooks(self, task: pl.LightningModule) -> ModuleHooks:
        hooks = ModuleHooks(task, self._before, self._after)
        self.forward.hooks = self.gradients.hooks = hooks
        return hooks

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, task, stage)
        self.trainer, self.task = trainer, task
        self._start("", None)

    def remove_hooks(self) -> None:
        super().remove_hooks()
        for handle in self.weight_hooks:
            handle.remove()
        self.weight_hooks.clear()
        self.forward.hooks = self.gradients.hooks = self.trainer = self.task = None
        self.forward.start(None)
        self.gradients.start(None)

    def _run(self, batch: Batch) -> Any:
        return self.task(batch)

    def _before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.forward.check_inputs(name, (args, kwargs))
        return None if self.forward.replayed is not None else self.gradients.watch_inputs(name, args, kwargs)

    def _after(self, name: str, inputs: Any, output: Any) -> None:
        self.forward.check_output(name, inputs, output)
        if self.forward.replayed is None:
            self.gradients.watch_output(name, output)

    # Batches

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._check_weights("before the first step of this training: ", "choose another checkpoint, or other vectors")
        self.weight_hooks = self.gradients.watch_weights(task)

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        self._start("train", batch)

    def on_validation_batch_start(self, trainer: Any, task: Any, batch: Any, *arguments: int) -> None:
        self._start("validation", batch)

    def on_test_batch_start(self, trainer: Any, task: Any, batch: Any, *arguments: int) -> None:
        self._start("test", batch)

    def on_after_backward(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        finding = None if trainer.precision == SCALED else self.gradients.finding(task)
        if finding is not None:
            self._fail(finding)

    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        self._check_weights(f"after step {trainer.global_step}, whose gradients were finite: ", self._lower_rate())

    def _start(self, split: str, batch: Any) -> None:
        self.split = split
        known = batch if isinstance(batch, Batch) else None
        self.forward.start(known)
        self.gradients.start(known)
        self.batches += batch is not None
        if known is not None:
            self._check_fields(known)

    # Checks of what is no module

    def _check_fields(self, batch: Batch) -> None:
        for name, values in batch.fields.items():
            if is_finite(values):
                continue
            rows = affected_rows(values, batch.host_lengths, longest_of(batch))
            if rows is None or len(rows):
                raise InputError(
                    self._position(),
                    f"the field {name} holds {_joined(kinds(values))} in {self._rows(rows)}",
                    "correct these values in the data, or remove the rows",
                )

    def _check_weights(self, when: str, remedy: str) -> None:
        for name, weight in self.task.named_parameters():
            if not is_finite(weight.detach()):
                owner = self.hooks.title(name.rpartition(".")[0]) if self.hooks is not None else ""
                raise InputError(
                    None, f"{when}the weight {name} of {owner} holds {_joined(kinds(weight.detach()))}", remedy
                )

    # The error line

    def _fail(self, finding: Finding) -> NoReturn:
        assert self.hooks is not None
        problem = f"{self._place(finding)} {_joined(finding.kinds)}"
        if finding.rows is not None and len(finding.rows):
            problem += f" in {self._rows(finding.rows)}"
        raise InputError(self._position(), problem, self._remedy(finding))

    def _place(self, finding: Finding) -> str:
        assert self.hooks is not None
        title = self.hooks.title(finding.module)
        around = None if finding.around is None else self.hooks.title(finding.around)
        if finding.role == "input":
            return f"the first non-finite value is made by an operation of {around} before {title}:"
        if finding.role == "gradient":
            return f"{title} is the first module in the backward pass with a non-finite gradient, of its input:"
        if finding.role == "weight":
            return f"{title} is the first module in the backward pass with a non-finite gradient, of its weights:"
        if finding.role == "output gradient":
            return f"the first non-finite gradient is made by an operation of {around or 'the task'} after {title}:"
        return f"{title} is the first module with a non-finite output:"

    def _remedy(self, finding: Finding) -> str:
        if finding.role in ("gradient", "weight", "output gradient"):
            return (
                "look for a derivative that is infinite at 0: sqrt, a norm, log or a division (debug=anomaly names it)"
            )
        if finding.largest_weight > LARGE:
            return f"its weights reach {finding.largest_weight:.2g}: {self._lower_rate()}"
        if finding.largest_input > LARGE:
            return (
                f"its inputs reach {finding.largest_input:.2g}: scale the numbers of the data, or {self._lower_rate()}"
            )
        reduced = "" if "32" in str(self.trainer.precision) else ", or set trainer.precision=32-true"
        return f"look for a division by 0, log or sqrt of 0 or less, or exp of a large number{reduced}"

    def _lower_rate(self) -> str:
        settings = getattr(self.task, "optimizer", None)
        rate = settings.get("lr") if isinstance(settings, Mapping) else None
        return f"lower optimizer.lr (now {rate:.3g})" if isinstance(rate, float) else "lower optimizer.lr"

    def _position(self) -> str:
        step = self.trainer.global_step
        return f"train, step {step + 1}" if self.split == "train" else f"{self.split}, after step {step}"

    def _rows(self, positions: np.ndarray | None) -> str:
        """Return the rows at positions of the batch, by their names in the data."""
        batch = self.forward.batch
        if batch is None or positions is None:
            return "rows that are not known"
        data = getattr(self.trainer, "datamodule", None)
        splits = self.splits if self.splits is not None else getattr(data, "splits", {})
        named = row_names(splits.get(self.split), np.sort(batch.ids[positions]))
        return f"{len(positions)} of {len(batch.ids)} rows of the batch: {named}"


def _joined(names: list[str]) -> str:
    return " and ".join(names)
