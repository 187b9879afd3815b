"""Import of a logger's package before PyTorch. Imports nothing heavy itself."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

# By the name of the logger: the module whose import takes long. W&B imports it when a run starts.
MODULES = {"wandb": "wandb.apis.public"}


def import_early(name: str) -> None:
    """Import the package of the logger `name`, if it has one that should be loaded before PyTorch.

    W&B's data classes look for their source in all loaded modules. That takes 0.3 s of CPU before PyTorch and Lightning
    are loaded, and 1.5 s after. An error is left to the opening of the logger, which imports again and explains it.
    """
    if name in MODULES:
        with suppress(Exception):
            import_module(MODULES[name])
