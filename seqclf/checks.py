"""Checks of single config values, for the errors a user can mend."""

from __future__ import annotations

from typing import Any

from seqclf.errors import InputError


def require_whole(key: str, value: Any, least: int, *, optional: bool = False) -> None:
    """Raise unless `value` is a whole number of at least `least`, or None where it is `optional`."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        null = " or null" if optional else ""
        raise InputError(f"{key}={value}: must be a whole number of at least {least}{null}")


def check_training(config: dict[str, Any]) -> None:
    """Raise unless the numbers that steer a training run are usable; before any data is read."""
    require_whole("seed", config["seed"], 0)
    require_whole("patience", config["patience"], 0, optional=True)
    require_whole("runtime.threads", config["runtime"]["threads"], 1, optional=True)
    for key in ("max_tokens", "pool_batches", "evaluation_factor"):
        require_whole(f"batching.{key}", config["batching"][key], 1)
    require_whole("batching.max_sequences", config["batching"]["max_sequences"], 1, optional=True)
    require_whole("batching.num_workers", config["batching"]["num_workers"], 0)
    if config["trainer"]["max_epochs"] != -1:
        require_whole("trainer.max_epochs", config["trainer"]["max_epochs"], 1, optional=True)
