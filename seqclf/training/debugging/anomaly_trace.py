"""Callback that names the operation whose gradient is NaN, with its module and line of code, by PyTorch's detection."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from seqclf.errors import InputError
from seqclf.training.debugging.module_hooks import Debugger, ModuleHooks, leaves, values_of

WARNING = "Error detected in"  # beginning of PyTorch's warning, which holds the traceback of the forward call
ERROR = re.compile(r"Function '(\w+)' returned nan values in its (\d+)")
FRAME = re.compile(r'File "(.+?)", line (\d+), in .+\n(.+)')
LIBRARIES = (Path(torch.__file__).parent, Path(pl.__file__).parent.parent)
MARK = "seqclf.module"  # key of a graph node's metadata


class AnomalyTrace(Debugger):
    """Trains under `torch.autograd.set_detect_anomaly`, and makes one line of its error.

    Every operation of the graph is marked with its module. In a Trainer of your own::

        trace = AnomalyTrace()
        trainer = pl.Trainer(max_epochs=5, callbacks=[trace])
        with trace.explained():
            trainer.fit(task, datamodule=batches)
    """

    def __init__(self) -> None:
        self.steps = 0
        self.module: str | None = None  # of the operation that is being differentiated
        self.traceback = ""
        self.titles: dict[str, str] = {}

    def summary(self) -> str:
        return f"no gradient was NaN in {self.steps:,} steps"

    def make_hooks(self, task: pl.LightningModule) -> ModuleHooks:
        hooks = ModuleHooks(task, after=self._mark)
        self.titles = {name: hooks.title(name) for name in hooks.modules}
        return hooks

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # Here, because Lightning sets it when the fit begins. It also restores what was set before, at the end.
        torch.autograd.set_detect_anomaly(True)

    def on_before_backward(self, trainer: pl.Trainer, task: pl.LightningModule, loss: torch.Tensor) -> None:
        self.steps += 1
        self._mark("", (), loss)  # the operations of the training step outside of modules

    def _mark(self, name: str, inputs: Any, output: Any) -> None:
        """Mark the operations between inputs and output that no inner module has marked."""
        if not torch.is_grad_enabled():
            return
        before = {values_of(leaf).grad_fn for leaf in leaves(inputs)}
        nodes: list[Any] = [values_of(leaf).grad_fn for leaf in leaves(output)]
        while nodes:
            node = nodes.pop()
            if node is None or node in before or MARK in node.metadata:
                continue
            node.metadata[MARK] = name
            node.register_prehook(partial(self._enter, name))
            nodes += [following for following, _ in node.next_functions]

    def _enter(self, name: str, gradients: Any) -> None:
        self.module = name

    @contextmanager
    def explained(self) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", WARNING)
            show = warnings.showwarning

            def keep(message: Any, *arguments: Any, **options: Any) -> None:
                if str(message).startswith(WARNING):
                    self.traceback = str(message)
                else:
                    show(message, *arguments, **options)

            warnings.showwarning = keep
            try:
                yield
            except RuntimeError as error:
                known = ERROR.search(str(error))
                if known is None:
                    raise
                raise self._error(known[1], known[2]) from None

    def _error(self, operation: str, position: str) -> InputError:
        title = self.titles.get(self.module or "", "")
        module = f" of {title}" if title else ""
        code = forward_line(self.traceback)
        called = f", called in {code}," if code else ""
        return InputError(
            f"step {self.steps}",
            f"the operation {operation}{module}{called} gave NaN as the gradient of its input {position}",
            "look at this operation, or see debug=nan for a value that was not finite before it",
        )


def forward_line(traceback: str) -> str:
    """Return the innermost line of a forward traceback that is not PyTorch's or Lightning's, "" without one.

    >>> forward_line('… error:\\n  File "/work/nets.py", line 7, in forward\\n    return x.sqrt()\\n')
    'nets.py:7 (return x.sqrt())'
    """
    frames = [(Path(path), line, code.strip()) for path, line, code in FRAME.findall(traceback)]
    outside = [frame for frame in frames if not any(library in frame[0].parents for library in LIBRARIES)]
    if not outside:
        return ""
    path, line, code = outside[-1]
    return f"{path.name}:{line} ({code})"
