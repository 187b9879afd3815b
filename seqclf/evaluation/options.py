"""Validation of the options in decision.*, and of the option `threshold` of the commands `predict` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seqclf.config.options import Options
from seqclf.config.override_text import label_text
from seqclf.errors import InputError, RefusedValueError
from seqclf.evaluation.decisions.decision import RULES

AUTO = "auto"  # value of holdout that a training replaces by a number (see `seqclf.runs.threshold_rows`)


def require_share(value: float) -> float:
    """Reject a value that is not a fraction above 0 and below 1, with the fraction that a percentage means."""
    if 0 < value < 1:
        return value
    hint = f"write {value:g} % as {value / 100:g}" if 1 < value < 100 else None
    raise RefusedValueError("must be a number above 0 and below 1", hint)


def read_labels(value: Any) -> Any:
    """Convert the labels in a mapping label → target to strings."""
    return {label_text(label): target for label, target in value.items()} if isinstance(value, Mapping) else value


ShareBetween = Annotated[float, AfterValidator(require_share)]
TargetShare = Annotated[ShareBetween | dict[str, ShareBetween], BeforeValidator(read_labels)]
AboveZero = Annotated[float, Field(gt=0)]
TargetCost = Annotated[AboveZero | dict[str, AboveZero], BeforeValidator(read_labels)]


def require_threshold(value: Any) -> Any:
    """Reject a value that is not a probability, `argmax` or null."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or value == "argmax" or (is_number and 0 <= value <= 1):
        return value
    raise RefusedValueError("must be a probability of the positive label, argmax or null")


ThresholdOption = Annotated[float | Literal["argmax"] | None, BeforeValidator(require_threshold)]


class DecisionOptions(Options):
    """Options of the config block `decision`. conf/decision/argmax.yaml explains each key and holds its default.

    A target is a number, or a mapping label → number. At most one of min_recall, min_precision, max_alerts and cost may
    have one, but a recall may have a budget of alerts (max_alerts) beside it. `parse_rule` checks that the labels
    occur.

    >>> from seqclf.config.options import parse_options
    >>> keys = dict.fromkeys(("min_recall", "min_precision", "max_alerts", "cost"))
    >>> keys |= {"confidence": None, "holdout": "auto", "provisional": False, "calibrate": False}
    >>> parse_options(DecisionOptions, {**keys, "min_recall": 0.8}, "decision").min_recall
    0.8
    >>> parse_options(DecisionOptions, {**keys, "min_recall": 80}, "decision")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: decision.min_recall=80: must be a number above 0 and below 1, or null; write 80 % as 0.8
    """

    min_recall: TargetShare | None
    min_precision: TargetShare | None
    max_alerts: TargetShare | None
    cost: TargetCost | None
    confidence: Annotated[float, Field(ge=0.5, le=0.9999)] | None
    holdout: Annotated[float, Field(ge=0, le=0.9)] | Literal["auto"]
    provisional: bool
    calibrate: bool

    @model_validator(mode="after")
    def _one_rule(self) -> DecisionOptions:
        rules = [rule for rule in RULES if getattr(self, rule) is not None]
        if len(rules) > 1 and rules != ["min_recall", "max_alerts"]:
            raise InputError(f"decision.{rules[0]} and decision.{rules[1]}", "set one of them")
        return self
