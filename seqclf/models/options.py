"""Types for the arguments of networks and encoders, by which `check_targets` validates a config. Needs no PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

from seqclf.config.hints import must_be_one_of
from seqclf.config.options import Count
from seqclf.errors import RefusedValueError

RUN_SETTINGS = ("members",)  # keys of the block `model` that no network takes
POOLINGS = ("last", "mean", "max", "attention")


def check_pooling(value: str) -> str:
    """Reject a pooling that is neither a known name nor several different known names joined by `+`."""
    names = value.split("+")
    unknown = [name for name in names if name not in POOLINGS]
    if unknown:
        problem, hint = must_be_one_of(unknown[0], POOLINGS)
        raise RefusedValueError(problem, "; ".join(filter(None, [hint, "several are joined by +"])))
    if len(set(names)) < len(names):
        raise RefusedValueError("names one twice")
    return value


def check_field_name(value: Any) -> str:
    """Reject a value that is not a text, such as null in a choice of conf/model."""
    if not isinstance(value, str) or not value:
        raise RefusedValueError("must be the name of a field of the data")
    return value


CellName = Literal["lstm", "gru", "rnn"]
Composition = Literal["child_sum", "binary"]
DropoutShare = Annotated[float, Field(ge=0, le=0.999)]
FieldName = Annotated[str, BeforeValidator(check_field_name)]
Layout = Literal["auto", "padded", "packed"]
PoolingNames = Annotated[str, AfterValidator(check_pooling)]


class NetworkArguments(TypedDict, total=False):
    """The block `model` of a config: a network's class and arguments, which are checked when the class is imported."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    members: Count


def with_run_settings(model: Any) -> Any:
    """Add the default value of `members`, which is a setting of the run and not an argument of a network."""
    return {**model, "members": model.get("members", 1)}


ModelArguments = Annotated[NetworkArguments, AfterValidator(with_run_settings)]
