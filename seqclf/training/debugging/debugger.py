"""Base class of the callbacks that watch a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from seqclf.training.debugging.module_hooks import ModuleHooks


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
