"""Types of the arguments of networks and encoders, and of the block `model`, which need no PyTorch.

An argument is declared once, on its constructor, by one of these types: `check_targets` checks a config by them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field
from typing_extensions import TypedDict

from seqclf.config.options import Count
from seqclf.config.suggestions import must_be_one_of
from seqclf.errors import RefusedValueError

POOLINGS = ("last", "mean", "max", "attention")


def check_pooling(value: str) -> str:
    """Refuse a pooling that is neither a name nor several different names joined by `+`."""
    names = value.split("+")
    unknown = [name for name in names if name not in POOLINGS]
    if unknown:
        problem, hint = must_be_one_of(unknown[0], POOLINGS)
        raise RefusedValueError(problem, "; ".join(filter(None, [hint, "several are joined by +"])))
    if len(set(names)) < len(names):
        raise RefusedValueError("names one twice")
    return value


CellName = Literal["lstm", "gru", "rnn"]
Composition = Literal["child_sum", "binary"]
DropoutShare = Annotated[float, Field(ge=0, le=0.999)]
FeedForwardName = Literal["gelu", "swiglu"]
Layout = Literal["auto", "padded", "packed"]
PoolingNames = Annotated[str, AfterValidator(check_pooling)]


class NetworkArguments(TypedDict, total=False):
    """The block `model`: the class of a network and its arguments, which are checked once the class is imported."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    members: Count


def one_member(model: Any) -> Any:
    """Set `members` where a config leaves it out. No class takes it (see `build_classifier`)."""
    return {**model, "members": model.get("members", 1)}


ModelArguments = Annotated[NetworkArguments, AfterValidator(one_member)]
