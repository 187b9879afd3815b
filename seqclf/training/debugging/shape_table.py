"""Table of the input and output shapes of every module in one forward pass, in the order of the module calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from rich.table import Table
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqclf.batching.datamodule import Batch
from seqclf.training.debugging.batch_rows import longest_of
from seqclf.training.debugging.module_hooks import Leaf, ModuleHooks, leaves, values_of

MEMBER = "model.members."


@dataclass(frozen=True)
class BatchShape:
    """Size of a batch.

    `longest`: number of tokens to which each row is padded. `tokens`: number of tokens without padding.
    """

    rows: int
    longest: int
    tokens: int
    shortest_row: int
    longest_row: int

    @property
    def padding(self) -> float:
        """Fraction of the padded batch that is padding."""
        return 1 - self.tokens / (self.rows * self.longest)

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of {self.shortest_row} to {self.longest_row} tokens, {self.tokens / self.rows:.1f} on "
            f"average, padded to {self.longest}: {self.padding:.1%} of {self.rows * self.longest:,} tokens are padding"
        )


class ShapeTable(Callback):
    """Records the input and output shapes of every module in a forward pass over the first training batch.

    The callback works in any Trainer::

        shapes = ShapeTable()
        pl.Trainer(max_steps=1, callbacks=[shapes]).fit(task, datamodule=batches)
        rich.print(shapes.table())
    """

    def __init__(self) -> None:
        self.batch: BatchShape | None = None
        self.shapes: dict[str, dict[str, Any]] = {}  # dict name of a module → its row, in the order of the calls

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        if self.batch is not None or not isinstance(batch, Batch):  # one batch is enough
            return
        lengths = np.asarray(batch.host_lengths)
        self.batch = BatchShape(
            len(lengths), longest_of(batch), int(lengths.sum()), int(lengths.min()), int(lengths.max())
        )
        hooks = ModuleHooks(task, lambda *call: self._visit(task, *call))
        try:
            # A pass of its own, because a training step does not run `forward` of a network with its own
            # `training_loss`.
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                task(batch)
        finally:
            hooks.remove()
        for name, module in hooks.modules.items():
            # Containers such as ModuleList have no forward.
            if name.startswith("model") and type(module).forward is not nn.Module.forward:
                self.shapes.setdefault(name, _row(name, module, "did not run"))

    def _visit(self, task: nn.Module, name: str, role: str, value: Any, inputs: Any) -> None:
        if not name:  # the task itself
            return
        # A module is added to the table when its input is visited, so that it is listed above its submodules.
        row = self.shapes.setdefault(name, _row(name, task.get_submodule(name), shape_text(inputs)))
        if role == "output":
            row["calls"] += 1
            if row["calls"] == 1:
                found = [values_of(leaf) for leaf in leaves(value)]
                floats = [values for values in found if values.is_floating_point()] or found
                dtypes = dict.fromkeys(str(values.dtype).removeprefix("torch.") for values in floats)
                row |= {"output": shape_text(value), "dtype": ", ".join(dtypes)}

    def table(self) -> Table:
        """Return a table with one line per module.

        For an ensemble, only the modules of the first network are listed.
        """
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for heading in ("module", "class", "input", "output", "dtype"):
            table.add_column(heading, no_wrap=True)
        table.add_column("weights", justify="right")
        others = set()
        for row in self.shapes.values():
            if row["module"].startswith(MEMBER) and (member := row["module"].split(".")[2]) != "0":
                others.add(member)
                continue
            calls = f" x{row['calls']}" if row["calls"] > 1 else ""
            shapes = [row["input"], row["output"], row["dtype"]]
            table.add_row(row["module"], f"{row['class_name']}{calls}", *shapes, f"{row['weights']:,}")
        if others:
            table.caption = f"{len(others)} more networks in model.members have the same shapes"
        return table


def _row(name: str, module: nn.Module, read: str) -> dict[str, Any]:
    """Return the row of a module before its first output.

    `weights`: number of weights in the module and its submodules. `calls`: number of calls, 0 for a module that did not
    run.
    """
    weights = sum(weight.numel() for weight in module.parameters())
    row = {"module": name, "class_name": type(module).__name__, "input": read, "output": "", "dtype": ""}
    return {**row, "weights": weights, "calls": 0}


def shape_text(value: Any) -> str:
    """Return a text with the shapes of all tensors in a nested value.

    >>> shape_text((torch.zeros(2, 3), {"lengths": torch.zeros(2)}))
    '(2, 3), (2)'
    """
    return ", ".join(_shape(leaf) for leaf in leaves(value))


def _shape(leaf: Leaf) -> str:
    packed = "packed " if isinstance(leaf, PackedSequence) else ""
    return f"{packed}({', '.join(map(str, values_of(leaf).shape))})"
