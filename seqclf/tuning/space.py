"""What may be chosen for each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seqclf.errors import InputError

RANGE = {"low", "high", "log", "step"}
FIXED = {"decision.holdout", "decision.provisional"}  # trials that keep other rows apart would see those of each other


def check_space(space: Mapping[str, Any]) -> None:
    """Raise unless each key has a list of choices, or a range `{low, high, log, step}`."""
    for key, given in space.items():
        named = f"search.space: {key}={given}"
        if key in FIXED:
            raise InputError(f"{named}: the rows that a promise rests on stay the same; set {key} outside of the space")
        if isinstance(given, list):
            if not given:
                raise InputError(f"{named}: has no choice")
        elif not isinstance(given, Mapping) or not {"low", "high"} <= set(given) <= RANGE:
            raise InputError(f"{named}: must be a list, or a range {{low: 1, high: 9}} with log: true or step: 2")
        elif not all(_is_number(given[end]) for end in ("low", "high")) or not given["low"] < given["high"]:
            raise InputError(f"{named}: low must be a number below high")
        elif given.get("log") and (given["low"] <= 0 or given.get("step")):
            raise InputError(f"{named}: a range on a log scale is above 0 and has no step")


def suggest(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each key, by an Optuna `trial`."""
    return {key: _value(trial, key, given) for key, given in space.items()}


def as_overrides(chosen: Mapping[str, Any]) -> list[str]:
    """For Hydra's command line."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in chosen.items()]


def _value(trial: Any, key: str, given: Any) -> Any:
    if isinstance(given, list):
        if all(choice is None or isinstance(choice, (bool, int, float, str)) for choice in given):
            return trial.suggest_categorical(key, given)
        return json.loads(trial.suggest_categorical(key, [json.dumps(choice) for choice in given]))
    log, step = bool(given.get("log")), given.get("step")
    if all(isinstance(given[end], int) for end in ("low", "high")) and (step is None or isinstance(step, int)):
        return trial.suggest_int(key, given["low"], given["high"], step=step or 1, log=log)
    return trial.suggest_float(key, given["low"], given["high"], step=step, log=log)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
