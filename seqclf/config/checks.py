"""Checks of config values, for the errors a user can mend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.errors import InputError

KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
}
NULLABLE = {
    "patience",
    "batching.max_sequences",
    "batching.overhead",
    "output",
}  # besides all of trainer, where null leaves a choice to Lightning
OPEN = {
    "data.fields",
    "data.generator",
    "loss.class_weights",
    "decision.min_recall",
    "decision.min_precision",
    "search.usual",
}  # mappings whose keys are the user's
ANY_KIND = {"trainer.devices"}  # "auto", a count or a list
PASSED_ON = {"trainer", "optimizer"}  # whose further keys go to Lightning and PyTorch
RANGES: dict[str, tuple[float, float]] = {
    "sequences": (1, float("inf")),
    "batch_size": (1, float("inf")),
    "updates": (1, float("inf")),
    "rounds": (1, float("inf")),
    "leak_steps": (20, float("inf")),  # one for each block of the slope
    "seed": (0, 2**32 - 1),
    "search.seed": (0, 2**32 - 1),
    "search.trials": (1, float("inf")),
    "patience": (0, float("inf")),
    "checkpoint_every": (1, float("inf")),
    "runtime.threads": (1, float("inf")),
    "batching.max_tokens": (1, float("inf")),
    "batching.max_sequences": (1, float("inf")),
    "batching.pool_batches": (1, float("inf")),
    "batching.overhead": (0, float("inf")),
    "batching.multiple_of": (1, float("inf")),
    "batching.edges": (1, float("inf")),
    "batching.balance": (0, 1),
    "batching.evaluation_factor": (1, float("inf")),
    "batching.num_workers": (0, float("inf")),
    "model.embedding_size": (1, float("inf")),
    "model.hidden_size": (1, float("inf")),
    "model.layers": (1, float("inf")),
    "model.members": (1, float("inf")),
    "model.dropout": (0, 0.999),
    "model.token_dropout": (0, 0.999),
    "model.number_noise": (0, float("inf")),
    "loss.label_smoothing": (0, 0.999),
    "loss.effective_beta": (0, 0.9999999),
    "loss.gamma": (0, float("inf")),
    "loss.tau": (0, float("inf")),
    "decision.confidence": (0.5, 0.9999),
    "logger.timeout": (1, float("inf")),
    "decision.holdout": (0, 0.9),
    "optimizer.lr": (1e-12, float("inf")),
    "optimizer.weight_decay": (0, float("inf")),
    "optimizer.schedule.warmup": (0, 1),
    "optimizer.schedule.floor": (0, 1),
    "trainer.max_epochs": (-1, float("inf")),
    "trainer.accumulate_grad_batches": (1, float("inf")),
    "trainer.check_val_every_n_epoch": (1, float("inf")),
    "trainer.gradient_clip_val": (0, float("inf")),
}


def check_types(config: Mapping[str, Any], defaults: Mapping[str, Any], above: str = "") -> None:
    """Raise unless each key is one of conf/ and its value of the kind of its default; a default of null allows any."""
    unknown = sorted(set(config) - set(defaults))
    if unknown and above.rstrip(".") not in PASSED_ON:
        raise InputError(f"{above}{unknown[0]}: no such key; --cfg job lists all keys")
    for name, default in defaults.items():
        key = f"{above}{name}"
        if name not in config:
            raise InputError(f"{key}: is missing; do not remove it with ~")
        value = config[name]
        if (
            default is None
            or key in OPEN
            or key in ANY_KIND
            or (value is None and (key in NULLABLE or key.startswith("trainer.")))
        ):
            continue
        if not _is_kind(value, type(default)):
            shown = "null" if value is None else value
            raise InputError(f"{key}={shown}: must be {KINDS[type(default)]}")
        if isinstance(default, dict) and default:
            check_types(value, default, f"{key}.")


def _is_kind(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is str:  # YAML reads the text 1 as a number; who uses it makes it a text again
        return isinstance(value, (str, int, float))
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def check_ranges(config: Mapping[str, Any]) -> None:
    """Raise unless each number of `RANGES` that is set is in its range, ends included."""
    for key, (low, high) in RANGES.items():
        value: Any = config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if not _is_kind(value, float):
            raise InputError(f"{key}={value}: must be a number, or null")
        if not low <= value <= high:
            limit = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
            raise InputError(f"{key}={value}: must be {limit}")
    if config["trainer"]["max_epochs"] == 0:
        raise InputError("trainer.max_epochs=0: must be at least 1, or -1 for no limit")


def require_whole(key: str, value: Any, least: int, *, optional: bool = False) -> None:
    """Raise unless `value` is a whole number of at least `least`, or None where it is `optional`."""
    if optional and value is None:
        return
    if not _is_kind(value, int) or value < least:
        null = " or null" if optional else ""
        raise InputError(f"{key}={value}: must be a whole number of at least {least}{null}")


def label_text(value: Any) -> str:
    """A label as the data has it: YAML reads `true` as a boolean and 3 as a number."""
    return str(value).lower() if isinstance(value, bool) else str(value)
