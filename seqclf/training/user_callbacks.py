"""Callbacks of Lightning that a config adds to those of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback

from seqclf.config.arguments import check_arguments
from seqclf.config.instantiate import build, locate_subclass
from seqclf.errors import InputError, first_line


def check_callbacks(callbacks: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError, which names the key, unless all are callbacks of Lightning with arguments that they take."""
    for index, settings in enumerate(callbacks):
        key = f"trainer.callbacks[{index}]"
        if "_target_" not in settings:
            raise InputError(f"{key}._target_", "missing", "name the class of the callback")
        located = locate_subclass(settings["_target_"], Callback, f"{key}._target_")
        check_arguments(key, located, settings.keys() - {"_target_"}, provided=())


def build_callbacks(callbacks: Sequence[Mapping[str, Any]] | None) -> list[Callback]:
    """Build callbacks of `_target_` dicts. Raises InputError, which names the key, on a value that one refuses.

    >>> build_callbacks([{"_target_": "lightning.pytorch.callbacks.LambdaCallback"}])[0].state_key
    'LambdaCallback'
    """
    built: list[Callback] = []
    for index, settings in enumerate(callbacks or ()):
        try:
            built.append(build(settings, Callback, f"trainer.callbacks[{index}]._target_"))
        except MisconfigurationException as error:
            where = f"trainer.callbacks[{index}]._target_={settings['_target_']}"
            raise InputError(where, first_line(error)) from None
    return built
