"""Shapes of one step: the inputs and outputs of every module, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqclf.batching.datamodule import Batch
from seqclf.training.debugging.module_hooks import Debugger, Leaf, ModuleHooks, leaves, longest_of, values_of

NO_FORWARD = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
HEADINGS = ("module", "class", "input", "output", "dtype", "device", "weights")
PER_LEVEL = 2  # spaces
MEMBER = "model.members."


@dataclass
class ModuleShapes:
    """A module in one step. `weights`: of the module and those inside it. `calls`: 0 for one that did not run."""

    module: str
    class_name: str
    input: str
    output: str
    dtype: str
    device: str
    weights: int
    calls: int


@dataclass(frozen=True)
class BatchShape:
    """Size of a batch. `longest`: tokens of each row with padding."""

    rows: int
    longest: int
    tokens: int
    shortest_row: int
    longest_row: int

    @property
    def padding(self) -> float:
        """Share of the tokens that are padding."""
        return 1 - self.tokens / (self.rows * self.longest)

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of {self.shortest_row} to {self.longest_row} tokens, {self.tokens / self.rows:.1f} on "
            f"average, padded to {self.longest}: {self.padding:.1%} of {self.rows * self.longest:,} tokens are padding"
        )


def batch_shape(batch: Batch) -> BatchShape:
    """Return the size of a batch."""
    lengths = np.asarray(batch.host_lengths)
    return BatchShape(len(lengths), longest_of(batch), int(lengths.sum()), int(lengths.min()), int(lengths.max()))


class ShapeTable(Debugger):
    """Records the inputs and outputs of every module in the first training batch.

    In any Trainer::

        shapes = ShapeTable()
        pl.Trainer(max_steps=1, callbacks=[shapes]).fit(task, datamodule=batches)
        print("\\n".join(shapes.lines()))
    """

    def __init__(self) -> None:
        self.batch: BatchShape | None = None
        self.shapes: dict[str, ModuleShapes] = {}
        self.forward_calls: set[str] = set()  # modules that ran in the forward before the training step

    def make_hooks(self, task: pl.LightningModule) -> ModuleHooks:
        return ModuleHooks(task, before=self._enter, after=self._leave)

    def summary(self) -> str:
        return f"{len(self.shapes)} modules"

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        if self.hooks is None or not isinstance(batch, Batch):
            return
        self.batch = batch_shape(batch)
        # A network that has a loss of its own (see `training_loss`) is not called as a whole in a training step.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            task(batch)
        self.forward_calls = {name for name, row in self.shapes.items() if row.calls}

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *arguments: Any) -> None:
        if self.hooks is None:
            return
        for name, module in self.hooks.modules.items():
            if name not in self.shapes and not isinstance(module, NO_FORWARD) and _has_forward(module) and name:
                self.shapes[name] = _row(name, module, "did not run")
        self.remove_hooks()  # the first batch is enough

    def _enter(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self.hooks is not None
        if name and name not in self.shapes:  # the task itself is no module of the network
            # Here and not after the forward, so that a module stands above those inside it.
            module = self.hooks.modules[name]
            self.shapes[name] = _row(name, module, shape_text((args, kwargs)))

    def _leave(self, name: str, inputs: Any, output: Any) -> None:
        if not name:
            return
        if name in self.forward_calls:
            return
        row = self.shapes[name]
        row.calls += 1
        if row.calls == 1:
            found = list(leaves(output))
            row.output = shape_text(output)
            row.dtype = _distinct(str(values_of(leaf).dtype).removeprefix("torch.") for leaf in _floats(found))
            row.device = _distinct(str(values_of(leaf).device) for leaf in found)

    def rows(self) -> list[dict[str, Any]]:
        """Return the modules as plain values, in the order in which they run."""
        return [asdict(row) for row in self.shapes.values()]

    def lines(self) -> list[str]:
        """Return the size of the batch, and an aligned line for each module, which is indented below its parent.

        Of an ensemble only the first network is shown, as the others are alike.
        """
        shown = [row for row in self.shapes.values() if not _is_other_member(row.module)]
        cells = [list(HEADINGS)]
        for row in shown:
            calls = f" x{row.calls}" if row.calls > 1 else ""
            name = _indented(row.module, self.shapes) if row.calls else row.module
            shapes = [row.input, row.output, row.dtype, row.device]
            cells.append([name, f"{row.class_name}{calls}", *shapes, f"{row.weights:,}"])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head = [] if self.batch is None else [f"first batch: {self.batch}"]
        return [*head, *(_aligned(line, widths) for line in cells), *self._other_members()]

    def _other_members(self) -> list[str]:
        others = {row.module.split(".")[2] for row in self.shapes.values() if _is_other_member(row.module)}
        return [f"{len(others)} more networks in model.members have the same shapes"] if others else []


def _row(name: str, module: nn.Module, read: str) -> ModuleShapes:
    weights = sum(weight.numel() for weight in module.parameters())
    return ModuleShapes(name, type(module).__name__, read, output="", dtype="", device="", weights=weights, calls=0)


def shape_text(value: Any) -> str:
    """Return the shapes of the tensors in a value.

    >>> import torch
    >>> shape_text((torch.zeros(2, 3), {"lengths": torch.zeros(2)}))
    '(2, 3), (2)'
    """
    return ", ".join(_shape(leaf) for leaf in leaves(value))


def _shape(leaf: Leaf) -> str:
    packed = "packed " if isinstance(leaf, PackedSequence) else ""
    return f"{packed}({', '.join(map(str, values_of(leaf).shape))})"


def _floats(found: Sequence[Leaf]) -> list[Leaf]:
    """Return the leaves of floating point numbers, or all if there are none."""
    return [leaf for leaf in found if values_of(leaf).is_floating_point()] or list(found)


def _distinct(texts: Any) -> str:
    return ", ".join(dict.fromkeys(texts))


def _has_forward(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _is_other_member(name: str) -> bool:
    return name.startswith(MEMBER) and not (f"{name}.").startswith(f"{MEMBER}0.")


def _indented(name: str, shapes: dict[str, ModuleShapes]) -> str:
    """Return the name of a module without that of the nearest module around it that ran, indented below it."""
    parts = name.split(".")
    above = [".".join(parts[:end]) for end in range(1, len(parts)) if ".".join(parts[:end]) in shapes]
    short = name.removeprefix(f"{above[-1]}.") if above else name
    return " " * PER_LEVEL * len(above) + short


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    return "  ".join([*padded, f"{cells[-1]:>{widths[-1]}}"])
