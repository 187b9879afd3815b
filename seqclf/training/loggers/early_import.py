"""Import of a logger's package before PyTorch. This module imports no large package itself."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

# Dict logger name → module that takes long to import. W&B imports this module itself when a run starts.
MODULES = {"wandb": "wandb.apis.public"}


def import_early(name: str) -> None:
    """Import the package of the logger `name` if this import is faster before the import of PyTorch.

    The data classes of W&B look for their own source code in all imported modules. The search takes 0.3 s of CPU time
    before PyTorch and Lightning are imported, and 1.5 s after. An import error is ignored here, because `open_logger`
    imports the package again and reports the error.
    """
    if name in MODULES:
        with suppress(Exception):
            import_module(MODULES[name])
