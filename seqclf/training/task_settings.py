"""Settings of a task: defaults, and values that depend on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqclf.config.build import Config
from seqclf.config.documentation import default_settings
from seqclf.data.storage.dataset import DatasetDescription
from seqclf.errors import InputError
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.settings.training import with_run_settings
from seqclf.training.checks.check_targets import resolve_for_data, resolve_loss


def resolve_task(
    dataset: DatasetDescription,
    model: Config | None,
    loss: Config | None,
    optimizer: Config | None,
    monitor: str | None,
    seed: int | None,
    frozen: Sequence[str] | None,
) -> tuple[dict[str, Any], str]:
    """Return the arguments of `SequenceTask` as plain values, and what the network takes from the data, in words.

    Raises InputError for settings that cannot be used.
    """
    if not isinstance(dataset, Mapping):
        raise InputError("dataset", f"is of type {type(dataset).__name__}", "give Dataset.description()")
    resolved, text = resolve_for_data(_with_defaults("model", model), dataset)
    if monitor not in (None, *EPOCH_METRICS):
        raise InputError(f"monitor={monitor}", f"must be one of {', '.join(EPOCH_METRICS)}")
    settings = {
        "dataset": dataset,
        "model": dict(resolved),
        "loss": dict(resolve_loss(_with_defaults("loss", loss))),
        "optimizer": _with_defaults("optimizer", optimizer),
        "monitor": monitor,
        "seed": default_settings("seed") if seed is None else seed,
        "frozen": list(frozen or ()),
    }
    return settings, text


def _with_defaults(name: str, settings: Config | None) -> Config:
    if settings is None:
        return default_settings(name)
    if not isinstance(settings, Mapping):
        remedy = f'must be a mapping of settings, such as load_config(["{name}={settings}"])["{name}"]'
        raise InputError(f"{name}={settings!r}", remedy)
    if "_target_" not in settings:
        return {**default_settings(name), **settings}
    return settings if name != "model" or "members" in settings else with_run_settings(settings)
