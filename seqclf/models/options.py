"""Types for the arguments of networks and encoders, by which `check_targets` validates a config. Needs no PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from seqclf.errors import RefusedValueError
from seqclf.settings.similar_names import must_be_one_of

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
FieldName = Annotated[str, BeforeValidator(check_field_name)]
Layout = Literal["auto", "padded", "packed"]
PoolingNames = Annotated[str, AfterValidator(check_pooling)]
