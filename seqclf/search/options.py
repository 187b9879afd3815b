"""The config of the command `search`: a search space with a list or a range of values for each config key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from seqclf.config.hints import did_you_mean
from seqclf.config.options import Count, Options, Seed
from seqclf.errors import InputError
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.results import SplitMetrics
from seqclf.training.options import TrainConfig

# Settings of all trials: no bundle and no baseline. With `provisional`, the rows that are held out for a guarantee have
# no influence on the best settings; all trials must hold out the same ones.
OF_TRIALS = {"export": False, "baseline": False, "decision.provisional": True}
NOT_SEARCHABLE = {"decision.holdout", "decision.provisional"}
LOSSES = {"loss", "ece"}  # metrics of which a lower value is better
SCORES: dict[str, Any] = {"validation": SplitMetrics, "test": SplitMetrics, "calibration": Calibration}


def check_space(space: dict[str, Any]) -> dict[str, Any]:
    """Return a search space. Raises InputError unless each key has a list of values or a range."""
    for key, values in space.items():
        setting = f"search.space: {key}={values}"
        if key in NOT_SEARCHABLE:
            problem = "the rows that a guarantee rests on stay the same"
            raise InputError(setting, problem, f"set {key} outside of the space")
        if not (isinstance(values, list) and values) and not _is_range(values):
            form = "a range {low: 1, high: 9} of rising numbers, with step: 2, or above 0 with log: true"
            raise InputError(setting, f"must be a list of values, or {form}")
    return space


def _is_range(values: Any) -> bool:
    if not isinstance(values, Mapping) or not {"low", "high"} <= set(values) <= {"low", "high", "log", "step"}:
        return False
    low, high, step = values["low"], values["high"], values.get("step")
    numbers = (low, high, 1 if step is None else step)
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) or not isfinite(each) for each in numbers):
        return False
    return low < high and numbers[2] > 0 and (not values.get("log") or (low > 0 and step is None))


def require_metric(name: str) -> str:
    """Return the name of a metric. Raises InputError if its first two parts name no scores of metrics.json.

    >>> require_metric("validation.positive.average_precision")
    'validation.positive.average_precision'
    """
    split, _, metric = name.partition(".")
    known = [field.name for field in fields(SCORES[split])] if split in SCORES else []
    if (first := metric.partition(".")[0]) not in known:
        remedy = did_you_mean(first, known) or f"write one of {', '.join(known) or 'validation.recall'}"
        raise InputError(f"search.metric={name}", "metrics.json has no such number", remedy)
    return name


Space = Annotated[dict[str, Any], AfterValidator(check_space)]


class SearchOptions(Options):
    """Keys `search.*` in the config of the command `search`, which conf/search.yaml explains."""

    space: Space | None
    usual: Space
    trials: Count
    metric: Annotated[str, AfterValidator(require_metric)]
    seed: Seed

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """`minimize` for losses and calibration errors, `maximize` for other metrics."""
        return "minimize" if self.metric.split(".")[1] in LOSSES else "maximize"


class SearchConfig(TrainConfig):
    """Config of the command `search`: all keys of the command `train`, and the keys `search.*`."""

    search: SearchOptions

    @model_validator(mode="after")
    def check_scores(self) -> SearchConfig:
        """Raise InputError for a setting with which trials give no metrics."""
        if self.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no scores to compare", "set trainer.max_epochs=1 instead")
        return self
