"""The first module with a non-finite value in a forward or backward pass, and the rows that hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from seqclf.batching.datamodule import Batch
from seqclf.training.debugging.module_hooks import (
    Leaf,
    ModuleHooks,
    affected_rows,
    is_finite,
    kinds,
    leaves,
    longest_of,
    map_tensors,
    single_row,
    values_of,
)


class Finding(NamedTuple):
    """Non-finite values at a module.

    `role`: `output` of the module, its `input` (made by an operation of the module `around` it), a `gradient` that it
    returns, the gradient of its `weight`, or the gradient that reaches its `output gradient`. `kinds`: of values.
    `rows`: (R,) positions in the batch, None if they are not known. `largest_input` and `largest_weight`: magnitudes.
    """

    role: str
    module: str
    around: str | None
    kinds: list[str]
    rows: np.ndarray | None
    largest_input: float = 0.0
    largest_weight: float = 0.0


class ForwardCheck:
    """Checks inputs and outputs of all modules in a forward pass of `network`. `found(finding)` is called, and raises.

    What lies beyond the lengths of a batch is no finding. Where the axes of a tensor do not tell its rows, each row of
    the batch runs alone, which also tells padding from tokens. -Inf is what masks are made of: it is no finding by
    itself, but the first one if anything else follows from it.
    """

    def __init__(self, network: Callable[[Any], Any], found: Callable[[Finding], None]):
        self.network = network
        self.found = found
        self.hooks: ModuleHooks | None = None
        self.start(None)

    def start(self, batch: Batch | None) -> None:
        """Begin a batch. None for one whose rows are not known: then all values must be finite."""
        self.batch = batch
        self.negative: list[Finding] = []  # of -Inf
        self.unconfirmed: list[Finding] = []  # of rows that are finite when they run alone
        self.rows_alone: dict[tuple[str, str], list[int]] | None = None  # rows by role and module
        self.replayed: set[tuple[str, str]] | None = None  # while a row runs alone
        if self.hooks is not None:
            self.hooks.running.clear()

    def check_inputs(self, name: str, value: Any) -> None:
        """Check the arguments of a module. An operation of the module around it made what is not finite."""
        for leaf in leaves(value):
            if not is_finite(leaf):
                self._judge("input", name, value, leaf)

    def check_output(self, name: str, inputs: Any, output: Any) -> None:
        """Check the output of a module, whose inputs were checked."""
        for leaf in leaves(output):
            if not is_finite(leaf):
                self._judge("output", name, inputs, leaf)

    def _judge(self, role: str, name: str, inputs: Any, leaf: Leaf) -> None:
        if self.replayed is not None:
            self.replayed.add((role, name))
            return
        assert self.hooks is not None
        finding = Finding(
            role,
            name,
            around=self.hooks.running[-2] if role == "input" and len(self.hooks.running) > 1 else None,
            kinds=kinds(values_of(leaf)),
            rows=self._rows(role, name, inputs, leaf),
            largest_input=_largest(values_of(part) for part in leaves(inputs)),
            largest_weight=_largest(self.hooks.modules[name].parameters(recurse=False)),
        )
        is_scalar = values_of(leaf).dim() == 0  # a loss, which has no padding
        if is_scalar:
            self.found(self._cause(finding) if finding.rows is not None else next(iter(self.unconfirmed), finding))
        elif finding.rows is None and self.batch is not None:
            self.unconfirmed.append(finding)
        elif finding.rows is not None and not len(finding.rows):
            return  # padding
        elif finding.kinds == ["-Inf"]:
            self.negative.append(finding)
        else:
            self.found(self._cause(finding))

    def _cause(self, finding: Finding) -> Finding:
        """Return the first finding of -Inf that a finding follows from, or itself."""
        outputs = (one for one in self.negative if one.role == "output" and _share_rows(one, finding))
        inputs = (one for one in self.negative if one.role == "input" and one.module == finding.module)
        return next(outputs, None) or next(inputs, finding)

    def _rows(self, role: str, name: str, inputs: Any, leaf: Leaf) -> np.ndarray | None:
        """Return the positions of the affected rows, none for padding alone, None if a row alone is finite."""
        if self.batch is None:
            return None
        rows = affected_rows(leaf, self.batch.host_lengths, longest_of(self.batch))
        if rows is not None:
            return rows
        if values_of(leaf).dim() == 0:
            return self._rows_of_scalar(name, inputs)
        if self.rows_alone is None:
            self.rows_alone = self._run_rows_alone(self.batch)
        alone = self.rows_alone.get((role, name))
        return None if alone is None else np.array(alone)

    def _run_rows_alone(self, batch: Batch) -> dict[tuple[str, str], list[int]]:
        """Return the rows that are not finite when they run alone, by role and module."""
        rows: dict[tuple[str, str], list[int]] = {}
        with self._replaying():
            for row in range(len(batch.host_lengths)):
                self.replayed = set()
                try:
                    self.network(single_row(batch, row))
                except Exception:  # a network may need two rows, or another kind of batch
                    return {}
                for key in self.replayed:
                    rows.setdefault(key, []).append(row)
        return rows

    def _rows_of_scalar(self, name: str, inputs: Any) -> np.ndarray | None:
        """Return the rows whose loss alone is not finite. `inputs`: of the loss, each with an entry per row."""
        assert self.batch is not None and self.hooks is not None
        size, module = len(self.batch.host_lengths), self.hooks.modules[name]
        if any(part.dim() == 0 or len(part) != size for part in map(values_of, leaves(inputs))):
            return None
        rows = []
        with self._replaying():
            for row in range(size):
                args, kwargs = map_tensors(inputs, partial(torch.narrow, dim=0, start=row, length=1))
                try:
                    rows += [] if all(map(is_finite, leaves(module(*args, **kwargs)))) else [row]
                except Exception:  # the code of another package may raise anything
                    return None
        return np.array(rows) if rows else None

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        """Run modules in evaluation mode, without gradients and with other random numbers; findings are collected."""
        assert self.hooks is not None
        running = list(self.hooks.running)
        modes = {module: module.training for module in self.hooks.modules.values()}
        cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        with torch.no_grad(), torch.random.fork_rng(devices=cuda):
            try:
                self.replayed = set()
                for module in modes:
                    module.training = False  # a norm of batches must not count these
                yield
            finally:
                self.replayed = None
                self.hooks.running[:] = running
                for module, training in modes.items():
                    module.training = training


def _share_rows(one: Finding, other: Finding) -> bool:
    return one.rows is None or other.rows is None or bool(np.isin(one.rows, other.rows).any())


def _largest(tensors: Iterator[Tensor] | Any) -> float:
    """Return the largest finite magnitude of floating point tensors, 0 if there is none."""
    sizes = [values.detach().abs() for values in tensors if values.is_floating_point() and values.numel()]
    return max((float(torch.where(size.isfinite(), size, 0.0).max()) for size in sizes), default=0.0)


# The first module of a backward pass with a non-finite gradient, and the rows that hold it.


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
