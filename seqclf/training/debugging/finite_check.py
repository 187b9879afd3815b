"""Callback that stops training at the first non-finite value, and names the module and the rows with that value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

from seqclf.batching.datamodule import Batch
from seqclf.errors import InputError
from seqclf.training.debugging.batch_rows import affected_rows, longest_of, row_names
from seqclf.training.debugging.module_hooks import Leaf, ModuleHooks, leaves, module_title, values_of

SCALED = "16-mixed"  # Lightning's precision with loss scaling; Lightning then skips steps with infinite gradients
PLACES = {  # dict role → start of the error message; {} stands for the name of the module or field
    "field": "the field {} holds",
    "input": "the first non-finite value is made by an operation before {}:",
    "output": "{} is the first module with a non-finite output:",
    "input gradient": "{} is the first module in the backward pass with a non-finite gradient, of its input:",
    "output gradient": "the first non-finite gradient is made by an operation after {}:",
}
OPERATION = "look for a division by 0, log or sqrt of 0 or less, or exp of a large number, or lower optimizer.lr"
DERIVATIVE = "look for a derivative that is infinite at 0: sqrt, a norm, log or a division"


class FiniteCheck(Callback):
    """Stops training at the first NaN or infinity in inputs, weights, outputs or gradients.

    Training steps with this callback take 1.5 times as long. The InputError names the step, the module, the kind of
    value (NaN, Inf or -Inf), and the rows of the batch. Non-finite values in padding are ignored. Two kinds of values
    do not stop training: -Inf, which masks use, and non-finite values in a tensor whose row axis is unknown. If
    training stops later, the error names such a value as the possible origin. The callback works in any Trainer. If a
    batch is not a `Batch`, the error does not name rows::

        trainer = pl.Trainer(max_epochs=5, callbacks=[FiniteCheck()])
        trainer.fit(task, datamodule=SequenceDataModule(dataset.splits))

    >>> FiniteCheck().summary()
    'all values were finite in 0 batches'
    """

    def __init__(self) -> None:
        self.batches = 0
        self.hooks: ModuleHooks | None = None
        self.trainer: Any = None
        self.task: Any = None
        self._start("", None)

    def summary(self) -> str:
        """Return a one-line summary of a training in which all values were finite."""
        return f"all values were finite in {self.batches:,} batches"

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self.remove_hooks()
        self.hooks = ModuleHooks(task, self.visit, gradients=True)
        self.trainer, self.task = trainer, task

    def on_structure_change(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Move the hooks to the modules of the new network after a change of structure (see `StructureSchedule`)."""
        self.setup(trainer, task, "fit")

    def teardown(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self.remove_hooks()

    def on_exception(self, trainer: pl.Trainer, task: Any, exception: BaseException) -> None:
        self.remove_hooks()  # Lightning does not call `teardown` after an error

    def remove_hooks(self) -> None:
        """Remove the hooks from all modules of the task."""
        if self.hooks is not None:
            self.hooks.remove()
        self.hooks = self.trainer = self.task = None
        self._start("", None)

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._check_weights("before the first step of this training", "choose another checkpoint, or other vectors")

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        self._start("train", batch)

    def on_validation_batch_start(self, trainer: Any, task: Any, batch: Any, *arguments: int) -> None:
        self._start("validation", batch)

    def on_test_batch_start(self, trainer: Any, task: Any, batch: Any, *arguments: int) -> None:
        self._start("test", batch)

    def on_after_backward(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Only gradients of weights are checked, because other gradients do not affect training.
        weights = [(name, weight.grad) for name, weight in task.named_parameters() if weight.grad is not None]
        wrong = [(name, gradient) for name, gradient in weights if not is_finite(gradient)]
        if wrong and trainer.precision != SCALED:
            name, gradient = wrong[0]
            unseen = f"the gradient of the weight {self._weight_title(name)} is the first: {kinds(gradient)}", None
            self._fail(*(self.gradient_found or unseen), DERIVATIVE)

    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        self._check_weights(f"after step {trainer.global_step}, whose gradients were finite", self._lower_rate())

    def _start(self, split: str, batch: Any) -> None:
        """Clear the findings of the previous batch, and check the fields of a new batch."""
        self.split = split
        self.batch = batch if isinstance(batch, Batch) else None
        self.origin = ""  # text about the first non-finite value that did not stop training
        # Message about the first non-finite gradient, and the rows with this gradient.
        self.gradient_found: tuple[str, np.ndarray | None] | None = None
        self.batches += batch is not None
        if self.batch is not None:
            for name, values in self.batch.fields.items():
                self.visit(name, "field", values, None)

    def visit(self, name: str, role: str, value: Any, inputs: Any) -> None:
        """Judge the non-finite values of an input, output or gradient of a module (see `ModuleHooks`)."""
        for leaf in leaves(value):
            if not is_finite(leaf):
                self._judge(name, role, leaf)

    def _judge(self, name: str, role: str, leaf: Leaf) -> None:
        assert self.hooks is not None
        rows = None
        if self.batch is not None:
            rows = affected_rows(leaf, self.batch.host_lengths, longest_of(self.batch))
            if rows is not None and not len(rows):
                return  # only padding is not finite
        title, found = name if role == "field" else module_title(name, self.hooks.modules[name]), kinds(leaf)
        problem = f"{PLACES[role].format(title)} {found}"
        is_scalar = values_of(leaf).dim() == 0  # a scalar is a loss and has no padding
        is_unclear = found == "-Inf" or (rows is None and self.batch is not None)
        if "gradient" in role:
            self.gradient_found = self.gradient_found or (problem, rows)
        elif is_unclear and not is_scalar and role != "field":
            self.origin = self.origin or f"; it may come from {found} in the {role} of {title} before"
        else:
            self._fail(problem, rows, "correct these values, or remove the rows" if role == "field" else OPERATION)

    def _check_weights(self, when: str, remedy: str) -> None:
        for name, weight in self.task.named_parameters():
            if not is_finite(weight):
                raise InputError(when, f"the weight {self._weight_title(name)} holds {kinds(weight)}", remedy)

    def _fail(self, problem: str, rows: np.ndarray | None, remedy: str) -> NoReturn:
        step = self.trainer.global_step
        position = f"train, step {step + 1}" if self.split == "train" else f"{self.split}, after step {step}"
        raise InputError(position, f"{problem}{self._rows_text(rows)}{self.origin}", remedy)

    def _rows_text(self, positions: np.ndarray | None) -> str:
        """Return a text with the names of the rows at `positions` in the batch.

        If `positions` is None, all rows of the batch are named.
        """
        if self.batch is None:
            return ""
        splits = getattr(getattr(self.trainer, "datamodule", None), "splits", {})
        ids = self.batch.ids
        count = "some" if positions is None else len(positions)
        named = row_names(splits.get(self.split), np.sort(ids if positions is None else ids[positions]))
        return f" in {count} of {len(ids)} rows of the batch: {named}"

    def _lower_rate(self) -> str:
        settings = getattr(self.task, "optimizer", None)
        rate = settings.get("lr") if isinstance(settings, Mapping) else None
        return f"lower optimizer.lr (now {rate:.3g})" if isinstance(rate, float) else "lower optimizer.lr"

    def _weight_title(self, name: str) -> str:
        module = name.rpartition(".")[0]
        return f"{name} of {module_title(module, self.task.get_submodule(module))}"


def is_finite(leaf: Leaf) -> bool:
    """Return True if all values of a tensor are finite. Integers and booleans are always finite."""
    return bool(torch.isfinite(values_of(leaf)).all())


def kinds(leaf: Leaf) -> str:
    """Return the kinds of non-finite values that a tensor contains: NaN, Inf and -Inf.

    >>> kinds(torch.tensor([1.0, float("inf"), float("nan")]))
    'NaN and Inf'
    """
    values = values_of(leaf)
    present = {"NaN": values.isnan(), "Inf": values.isposinf(), "-Inf": values.isneginf()}
    return " and ".join(kind for kind, where in present.items() if bool(where.any()))
