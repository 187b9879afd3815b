"""The config of the command `search`, and its search space: a list or range of values for each config key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from seqclf.config.documentation import flat_keys
from seqclf.config.hints import did_you_mean
from seqclf.config.options import Count, Options, Seed
from seqclf.config.override_text import hydra_value
from seqclf.errors import InputError
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.results import SplitMetrics
from seqclf.training.options import TrainConfig

TrialSettings = dict[str, Any]  # settings of a trial: dict dotted key → value, such as {"model.layers": 2}
RANGE_KEYS = {"low", "high", "log", "step"}
SETTINGS = "settings"  # user attribute with the settings of an Optuna trial (Optuna's own parameters cannot be lists)
# Settings that are the same for all trials: no bundle and no baseline. With `provisional`, the rows that are held out
# for a guarantee have no influence on the best settings.
OF_TRIALS = {"export": False, "baseline": False, "decision.provisional": True}
# Names of metrics for which a lower value is better.
LOSSES = {"loss", "ece"}
# Keys that must be the same in all trials. Otherwise, a trial could train on rows that another trial holds out.
NOT_SEARCHABLE = {"decision.holdout", "decision.provisional"}


def check_space(space: dict[str, Any]) -> dict[str, Any]:
    """Return a search space.

    Raises InputError unless each key has a list of values or a range `{low, high, log, step}`.
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
    return space


def known_keys(space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search space without the keys that do not exist in a config.

    The default search space may contain keys that the network of another package does not have.

    >>> known_keys({"model.layers": [1, 2], "model.dropout": [0.1, 0.2]}, {"model": {"dropout": 0.1}})
    {'model.dropout': [0.1, 0.2]}
    """
    known = flat_keys(config)
    return {key: values for key, values in space.items() if key in known}


def suggest(trial: Any, space: Mapping[str, Any]) -> TrialSettings:
    """Draw a value for each key of the search space.

    Return the settings as a dict key → value. The settings are also stored in the Optuna trial, as the user attribute
    `SETTINGS`.
    """
    settings = {key: _suggest_value(trial, key, values) for key, values in space.items()}
    trial.set_user_attr(SETTINGS, settings)
    return settings


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Convert settings to overrides for Hydra's command line.

    >>> as_overrides({"model.pooling": "max", "patience": None})
    ['model.pooling=max', 'patience=null']
    """
    return [f"{key}={hydra_value(value)}" for key, value in settings.items()]


def _suggest_value(trial: Any, key: str, values: Any) -> Any:
    if isinstance(values, list):
        # Optuna's parameters must be scalars, so a list or a dict is converted to JSON text.
        return json.loads(trial.suggest_categorical(key, [json.dumps(choice) for choice in values]))
    log, step = bool(values.get("log")), values.get("step")
    if all(isinstance(values[end], int) for end in ("low", "high")) and (step is None or isinstance(step, int)):
        return trial.suggest_int(key, values["low"], values["high"], step=step or 1, log=log)
    return trial.suggest_float(key, values["low"], values["high"], step=step, log=log)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require_metric(name: str) -> str:
    """Return the name of a metric. Raises InputError if its first two parts name no scores of metrics.json.

    >>> require_metric("validation.positive.average_precision")
    'validation.positive.average_precision'
    """
    split, _, metric = name.partition(".")
    known = [field.name for field in fields(SCORES[split])] if split in SCORES else []
    first = metric.partition(".")[0]
    if first not in known:
        listed = ", ".join(f"{split}.{field}" for field in known) or "validation.recall"
        remedy = did_you_mean(first, known) or f"write one of {listed}"
        raise InputError(f"search.metric={name}", "metrics.json has no such number", remedy)
    return name


SCORES: dict[str, Any] = {"validation": SplitMetrics, "test": SplitMetrics, "calibration": Calibration}
Space = Annotated[dict[str, Any], AfterValidator(check_space)]


class SearchOptions(Options):
    """Keys `search.*` in the config of the command `search`.

    See conf/search.yaml for the meaning and default of each key.
    """

    space: Space | None
    usual: Space
    trials: Count
    metric: Annotated[str, AfterValidator(require_metric)]
    seed: Seed

    @property
    def goal(self) -> Literal["maximize", "minimize"]:
        """Direction of the search. Losses and calibration errors are minimized, and other metrics are maximized."""
        return "minimize" if self.metric.split(".")[1] in LOSSES else "maximize"


class SearchConfig(TrainConfig):
    """Config of the command `search`. The config has all keys of the command `train`, and the keys `search.*`."""

    search: SearchOptions

    @model_validator(mode="after")
    def check_scores(self) -> SearchConfig:
        """Raise InputError for a setting with which trials give no metrics."""
        if self.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no scores to compare", "set trainer.max_epochs=1 instead")
        return self
