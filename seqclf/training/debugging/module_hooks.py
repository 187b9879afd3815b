"""Hooks on every module of a network, and what all debuggers share: non-finite tensors, and names of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle
from torchmetrics import Metric, MetricCollection

from seqclf.batching.datamodule import Batch
from seqclf.data.storage.store import Split


class ModuleHooks:
    """Calls `before` and `after` around the forward of every module inside `root`, the modules inside it first.

    `before(name, args, kwargs)` may return other arguments, as `(args, kwargs)`. `after(name, inputs, output)` returns
    nothing; `inputs` are both kinds of arguments. `running` holds the names of the modules whose forward runs, the
    innermost last. `modules`: by name. Metrics are left out.

    >>> import torch
    >>> calls = []
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> hooks = ModuleHooks(network, after=lambda name, inputs, output: calls.append((name, tuple(output.shape))))
    >>> _ = network(torch.zeros(1, 2))
    >>> calls
    [('0', (1, 3)), ('1', (1, 3)), ('', (1, 3))]
    >>> hooks.remove()
    """

    def __init__(
        self,
        root: nn.Module,
        before: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] | None = None,
        after: Callable[[str, Any, Any], None] | None = None,
    ):
        self.before = before
        self.after = after
        self.running: list[str] = []
        metrics = [module for module in root.modules() if isinstance(module, (Metric, MetricCollection))]
        inside_metrics = {inner for metric in metrics for inner in metric.modules()}
        self.modules = {name: module for name, module in root.named_modules() if module not in inside_metrics}
        self.handles: list[RemovableHandle] = []
        for name, module in self.modules.items():
            self.handles.append(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            self.handles.append(module.register_forward_hook(partial(self._leave, name), with_kwargs=True))

    def title(self, name: str) -> str:
        """Return the name of a module with its class.

        >>> ModuleHooks(nn.Sequential(nn.Linear(2, 3))).title("0")
        '0 (Linear)'
        """
        class_name = type(self.modules[name]).__name__
        return f"{name} ({class_name})" if name else class_name

    def remove(self) -> None:
        """Remove the hooks from all modules."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.running.clear()

    def _enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.running.append(name)
        return self.before(name, args, kwargs) if self.before is not None else None

    def _leave(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.after is not None:
            self.after(name, (args, kwargs), output)
        self.running.pop()


# Base class of the callbacks that watch a training.


class Debugger(Callback):
    """Watches the modules of a training, from the first batch of a fit, validation or test to its end.

    A subclass defines `make_hooks`. The hooks are removed at the end, after an error too.
    """

    hooks: ModuleHooks | None = None

    def make_hooks(self, task: pl.LightningModule) -> ModuleHooks:
        """Return the hooks on the modules of a task."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return one line about a training in which nothing was wrong."""
        raise NotImplementedError

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Replace an error that PyTorch raises inside by one that names module and remedy, if the callback can."""
        yield

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self.remove_hooks()
        self.hooks = self.make_hooks(task)

    def on_structure_change(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Watch the modules of a network that has replaced another one (see `StructureSchedule`)."""
        self.setup(trainer, task, "fit")

    def teardown(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self.remove_hooks()

    def on_exception(self, trainer: pl.Trainer, task: Any, exception: BaseException) -> None:
        self.remove_hooks()  # Lightning does not call `teardown` after an error

    def remove_hooks(self) -> None:
        """Leave the modules as they were."""
        if self.hooks is not None:
            self.hooks.remove()
            self.hooks = None


# Tensors in the arguments and outputs of modules, which may be nested in tuples, lists, dicts and packed sequences.

Leaf = Tensor | PackedSequence


def leaves(value: Any) -> Iterator[Leaf]:
    """Yield the tensors and packed sequences in a value, in their order. Anything else is left out.

    >>> import torch
    >>> [tuple(leaf.shape) for leaf in leaves((torch.zeros(2, 3), {"length": torch.ones(2)}, None))]
    [(2, 3), (2,)]
    """
    if isinstance(value, (Tensor, PackedSequence)):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from leaves(part)


def values_of(leaf: Leaf) -> Tensor:
    """Return the tensor of a leaf: the values of a packed sequence, and those that a sparse tensor stores."""
    tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
    return tensor._values() if tensor.is_sparse else tensor


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a value of the same structure with `function` applied to each tensor, and to the data of packed ones."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, PackedSequence):
        return value._replace(data=function(value.data))
    if isinstance(value, dict):
        return {name: map_tensors(part, function) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [map_tensors(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [map_tensors(part, function) for part in value] if isinstance(value, list) else value


# Non-finite values of a tensor: their kinds, and the rows of the batch that hold them, padding excluded.


def is_finite(leaf: Leaf) -> bool:
    """Return True if all values are finite. Whole numbers and booleans always are."""
    values = values_of(leaf)
    return not (values.is_floating_point() or values.is_complex()) or bool(torch.isfinite(values).all())


def kinds(values: Tensor) -> list[str]:
    """Return the kinds of non-finite values in a tensor: NaN, Inf and -Inf.

    >>> kinds(torch.tensor([1.0, float("inf"), float("nan")]))
    ['NaN', 'Inf']
    """
    present = {"NaN": values.isnan(), "Inf": values.isposinf(), "-Inf": values.isneginf()}
    return [kind for kind, where in present.items() if bool(where.any())]


def affected_rows(leaf: Leaf, lengths: np.ndarray, longest: int) -> np.ndarray | None:
    """Return the positions in the batch of rows with a non-finite value, or None if its axes do not tell them.

    `lengths`: (B,). `longest`: T. What lies beyond a length is padding, which may hold anything: the result is empty
    where only padding is not finite. Known are (B, T, …), (B, D) and packed sequences.

    >>> values = torch.zeros(2, 3, 1)
    >>> values[0, 2] = float("nan")
    >>> affected_rows(values, np.array([3, 1]), 3), affected_rows(values, np.array([2, 3]), 3)
    (array([0]), array([], dtype=int64))
    """
    if isinstance(leaf, PackedSequence):
        wrong = ~torch.isfinite(leaf.data).reshape(len(leaf.data), -1).all(dim=1).cpu().numpy()
        return np.unique(_packed_rows(leaf)[wrong])
    if leaf.is_sparse or leaf.dim() == 0 or leaf.shape[0] != len(lengths):
        return None
    wrong = ~torch.isfinite(leaf).cpu().numpy()
    if wrong.ndim == 1 or (wrong.ndim == 2 and wrong.shape[1] != longest):
        return np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
    if wrong.shape[1] != longest:
        return None
    inside = np.arange(longest) < lengths[:, None]
    rows = np.flatnonzero((wrong.reshape(*wrong.shape[:2], -1).any(axis=2) & inside).any(axis=1))
    # (B, T) may also be (B, D) with as many channels as there are tokens.
    return rows if len(rows) or wrong.ndim > 2 else None


def _packed_rows(packed: PackedSequence) -> np.ndarray:
    """(S,) position in the batch of each value of a packed sequence, which holds all first tokens, then all second."""
    sizes = packed.batch_sizes.numpy()
    sorted_rows = np.concatenate([np.arange(size) for size in sizes])
    return sorted_rows if packed.sorted_indices is None else packed.sorted_indices.cpu().numpy()[sorted_rows]


def longest_of(batch: Batch) -> int:
    """Return the number of tokens T that the sequences of a batch are padded to."""
    return max(values.shape[1] for values in batch.fields.values())


def single_row(batch: Batch, row: int) -> Batch:
    """Return one row of a batch as a batch without padding. `row`: its position in the batch."""
    length, longest = int(batch.host_lengths[row]), longest_of(batch)
    one = slice(row, row + 1)
    fields = {
        name: values[one, :length] if values.shape[1] == longest else values[one]
        for name, values in batch.fields.items()
    }
    return batch._replace(
        fields=fields,
        lengths=batch.lengths[one],
        labels=batch.labels[one],
        host_lengths=batch.host_lengths[one],
        ids=batch.ids[one],
    )


# Rows of a batch, by the numbers and ids that their data file knows them by.

MAX_NAMED = 4


def row_name(split: Split | None, index: int) -> str:
    """Return the number of a row in its file, and its id if that is another, from its index in the split.

    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from seqclf.data.storage.store import Ragged
    >>> sequences = Ragged(np.array([0, 1, 2]), {"token": np.array([1, 2])})
    >>> split = Split(sequences, np.array([0, 1]), pa.array(["a", "b"]), np.array([3, 7]))
    >>> row_name(split, 1), row_name(None, 1)
    ('row 7 (id b)', 'row with index 1')
    """
    if split is None:
        return f"row with index {index}"
    number, row_id = str(split.row_numbers[index]), str(split.ids[index].as_py())
    return f"row {number}" if row_id == number else f"row {number} (id {row_id})"


def row_names(split: Split | None, indices: Iterable[int], most: int = MAX_NAMED) -> str:
    """Return the names of the first `most` rows, and the number of the others."""
    rows = [int(index) for index in indices]
    names = ", ".join(row_name(split, index) for index in rows[:most])
    return names if len(rows) <= most else f"{names} and {len(rows) - most} more"
