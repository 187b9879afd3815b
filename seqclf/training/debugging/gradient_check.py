"""The first module of a backward pass with a non-finite gradient, and the rows that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from seqclf.batching.datamodule import Batch
from seqclf.training.debugging.forward_check import Finding
from seqclf.training.debugging.module_hooks import ModuleHooks
from seqclf.training.debugging.nested_tensors import Leaf, leaves, map_tensors, values_of
from seqclf.training.debugging.non_finite import affected_rows, is_finite, kinds, longest_of, single_row


class GradientCheck:
    """Records the gradients of inputs and outputs of all modules that are not finite, in the order of their making.

    A training is only harmed where they reach a weight: `finding` is None otherwise. Gradients of padding are left out.
    """

    def __init__(self) -> None:
        self.hooks: ModuleHooks | None = None
        self.start(None)

    def start(self, batch: Batch | None) -> None:
        """Begin a batch. None for one whose rows are not known."""
        self.batch = batch
        self.found: list[Finding] = []

    def watch_inputs(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return arguments of a module whose gradients are checked.

        They are views: several modules may take the same tensor, whose gradient is the sum of theirs.
        """
        if not torch.is_grad_enabled() or not any(values_of(leaf).requires_grad for leaf in leaves((args, kwargs))):
            return None
        args, kwargs = map_tensors(
            (args, kwargs), lambda values: values.view_as(values) if _has_grad(values) else values
        )
        self._watch("gradient", name, (args, kwargs))
        return args, kwargs

    def watch_output(self, name: str, output: Any) -> None:
        """Check the gradients of the output of a module."""
        if torch.is_grad_enabled():
            self._watch("output gradient", name, output)

    def watch_weights(self, task: pl.LightningModule) -> list[RemovableHandle]:
        """Check the gradients of all weights. Returns the handles of the hooks."""
        return [
            weight.register_hook(partial(self._record, "weight", name.rpartition(".")[0], None, None))
            for name, weight in task.named_parameters()
            if weight.requires_grad
        ]

    def _watch(self, role: str, name: str, value: Any) -> None:
        assert self.hooks is not None
        around = self.hooks.running[-2] if len(self.hooks.running) > 1 else None
        for leaf in leaves(value):
            if _has_grad(values_of(leaf)):
                packed = leaf if isinstance(leaf, PackedSequence) else None
                values_of(leaf).register_hook(partial(self._record, role, name, around, packed))

    def _record(
        self, role: str, name: str, around: str | None, packed: PackedSequence | None, gradient: Tensor
    ) -> None:
        if is_finite(gradient):
            return
        rows = None
        if self.batch is not None and role != "weight":
            leaf: Leaf = gradient if packed is None else packed._replace(data=gradient)
            rows = affected_rows(leaf, self.batch.host_lengths, longest_of(self.batch))
        if rows is None or len(rows):
            self.found.append(Finding(role, name, around, kinds(values_of(gradient)), rows))

    def finding(self, task: pl.LightningModule) -> Finding | None:
        """Return the first finding of the last backward pass, None if the gradients of all weights are finite."""
        wrong = [weight for weight in task.parameters() if weight.grad is not None and not is_finite(weight.grad)]
        if not wrong or not self.found:
            return None
        first = self.found[0]
        return first if first.rows is not None else first._replace(rows=self._rows_alone(task, wrong))

    def _rows_alone(self, task: Any, weights: Sequence[Tensor]) -> np.ndarray | None:
        """Return the rows whose gradients are not finite when they are trained on alone, None if there are none."""
        if self.batch is None:
            return None
        rows = []
        for row in range(len(self.batch.host_lengths)):
            try:
                with torch.enable_grad():
                    loss = task.training_step(single_row(self.batch, row), 0)
                    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            except Exception:  # a network may need two rows, or another kind of batch
                return None
            rows += [] if all(gradient is None or is_finite(gradient) for gradient in gradients) else [row]
        return np.array(rows) if rows else None


def _has_grad(values: Tensor) -> bool:
    return values.requires_grad and values.is_floating_point()
