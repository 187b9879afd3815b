"""Keys of the config block `decision`, and the key `threshold` of the commands `predict` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.base import Options
from seqclf.settings.typed_text import label_text

TARGETS = ("min_recall", "min_precision", "max_alerts", "cost")
AUTO = "auto"  # value of holdout that a training replaces by a number (see `seqclf.runs.prepare`)


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
TargetCost = Annotated[AboveZero | dict[str, AboveZero] | str, BeforeValidator(read_labels)]


def require_threshold(value: Any) -> Any:
    """Reject a value that is not a probability, `argmax` or null."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or value == "argmax" or (is_number and 0 <= value <= 1):
        return value
    raise RefusedValueError("must be a probability of the positive label, argmax or null")


ThresholdOption = Annotated[float | Literal["argmax"] | None, BeforeValidator(require_threshold)]


class DecisionOptions(Options):
    """The decision rule. Without a target: the most probable label.

    For two classes a target holds for data.positive. For more classes, min_recall and min_precision take targets by
    label, which hold together: 'decision.min_recall={crash: 0.9, hang: 0.8}'. Set one of the four targets.

    On average, new rows like those that set the threshold meet the target. With a confidence, they meet it for sure
    with that probability. Where the rows are too few for the statement, a weaker one holds, and the verdict says so. Of
    the rows of one group (data.group), or of equal sequences (split.by=distinct), all together count as one.

    Where validation chooses nothing but the weights of heads, all its rows set the threshold, each by a score of
    weights that were fitted without its fifth of validation, and statements are approximate. Elsewhere half of
    validation is held out: it neither chooses the epoch nor counts in the validation scores. The threshold is stored in
    the bundle; predict and evaluate apply it.

    >>> from seqclf.settings.base import parse_options
    >>> parse_options(DecisionOptions, {"min_recall": 80}, "decision")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: decision.min_recall=80: must be a number above 0 and below 1, or null; write 80 % as 0.8
    """

    min_recall: TargetShare | None = None
    """minimum fraction of the positive rows that are detected, with as few alerts as that takes"""
    min_precision: TargetShare | None = None
    """minimum fraction of the alerts that are right, detecting as many positive rows as that allows"""
    max_alerts: TargetShare | None = None
    """maximum fraction of all rows that become alerts; beside min_recall: the budget of its alerts"""
    cost: TargetCost | None = None
    """cost of a missed positive row, in false alarms; or the column of the cost of each row, such as its amount
    divided by the price of a check"""
    confidence: Annotated[float, Field(ge=0.5, le=0.9999)] | None = None
    """null: the target holds on average; 0.95: it holds with this probability on new data with at least as many
    such rows as set the threshold"""
    holdout: Annotated[float, Field(ge=0, le=0.9)] | Literal["auto"] = "auto"
    """fraction of the validation rows held out for the threshold; auto: none if validation chooses at most the
    weights of heads, else 0.5; 0: none, and nothing is guaranteed if the rows that set the threshold also chose
    the epoch"""
    provisional: bool = False
    """true: do not touch the held-out rows, and set the threshold on the other validation rows, without a
    guarantee. Every trial of a search does this"""
    calibrate: bool = False
    """divide logits by a temperature fitted on validation, so that probabilities match frequencies"""

    @model_validator(mode="after")
    def _one_rule(self) -> DecisionOptions:
        rules = [rule for rule in TARGETS if getattr(self, rule) is not None]
        if len(rules) > 1 and rules != ["min_recall", "max_alerts"]:
            raise InputError(f"decision.{rules[0]} and decision.{rules[1]}", "set one of them")
        return self
