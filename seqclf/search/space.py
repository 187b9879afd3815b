"""The search space: the values that each key may have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from seqclf.config.options import Count, Options, Seed
from seqclf.errors import InputError
from seqclf.training.options import TrainConfig

TrialSettings = dict[str, Any]  # the values of a trial by dotted key, such as {"model.layers": 2}
RANGE_KEYS = {"low", "high", "log", "step"}
# Trials with another holdout would train on rows that other trials keep apart for a guarantee.
NOT_SEARCHABLE = {"decision.holdout", "decision.provisional"}


def check_space(space: Mapping[str, Any]) -> None:
    """Raise InputError unless each key has a list of choices, or a range `{low, high, log, step}`.

    >>> check_space({"model.layers": [1, 2], "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}})
    """
    for key, values in space.items():
        setting = f"search.space: {key}={values}"
        if key in NOT_SEARCHABLE:
            raise InputError(
                setting, "the rows that a guarantee rests on stay the same", f"set {key} outside of the space"
            )
        if isinstance(values, list):
            if not values:
                raise InputError(setting, "has no choice")
        elif not isinstance(values, Mapping) or not {"low", "high"} <= set(values) <= RANGE_KEYS:
            raise InputError(setting, "must be a list, or a range {low: 1, high: 9} with log: true or step: 2")
        elif not all(_is_number(values[end]) for end in ("low", "high")) or not values["low"] < values["high"]:
            raise InputError(setting, "low must be a number below high")
        elif values.get("log") and (values["low"] <= 0 or values.get("step")):
            raise InputError(setting, "a range on a log scale is above 0 and has no step")


def known_keys(space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a search space whose dotted keys a config has. A network of another package may lack some.

    >>> known_keys({"model.layers": [1, 2], "model.dropout": [0.1, 0.2]}, {"model": {"dropout": 0.1}})
    {'model.dropout': [0.1, 0.2]}
    """

    def has(key: str) -> bool:
        value: Any = config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return True

    return {key: values for key, values in space.items() if has(key)}


def suggest(trial: Any, space: Mapping[str, Any]) -> TrialSettings:
    """Return a value for each key, drawn by an Optuna `trial`."""
    return {key: _suggest_value(trial, key, values) for key, values in space.items()}


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as arguments for Hydra's command line.

    >>> as_overrides({"model.pooling": "max", "patience": None})
    ['model.pooling=max', 'patience=null']
    """
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]


def _suggest_value(trial: Any, key: str, values: Any) -> Any:
    if isinstance(values, list):
        if all(choice is None or isinstance(choice, (bool, int, float, str)) for choice in values):
            return trial.suggest_categorical(key, values)
        # Optuna stores scalars only.
        return json.loads(trial.suggest_categorical(key, [json.dumps(choice) for choice in values]))
    log, step = bool(values.get("log")), values.get("step")
    if all(isinstance(values[end], int) for end in ("low", "high")) and (step is None or isinstance(step, int)):
        return trial.suggest_int(key, values["low"], values["high"], step=step or 1, log=log)
    return trial.suggest_float(key, values["low"], values["high"], step=step, log=log)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# The config of `search`, checked without PyTorch.


def require_space(space: dict[str, Any]) -> dict[str, Any]:
    """Refuse a search space with a range or a list that nothing can be drawn from."""
    check_space(space)
    return space


Space = Annotated[dict[str, Any], AfterValidator(require_space)]


class SearchOptions(Options):
    """The block search of conf/search.yaml, which explains each key and holds its default."""

    space: Space | None
    usual: Space
    trials: Count
    metric: str
    direction: Literal["maximize", "minimize"]
    seed: Seed


class SearchConfig(TrainConfig):
    """The config of every trial, and how to search."""

    search: SearchOptions

    @model_validator(mode="after")
    def check_scores(self) -> SearchConfig:
        """Refuse trials that score nothing."""
        if self.debug.ends_early:
            raise InputError(
                f"debug={self.debug.name}", "leaves no scores to compare", "remove it, or use seqclf train"
            )
        if self.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no scores to compare", "set trainer.max_epochs=1 instead")
        return self
