"""The arguments of the built-in model, checked without PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from seqclf.config.options import Count, NonNegative
from seqclf.config.suggestions import must_be_one_of

POOLING_NAMES = ("last", "mean", "max", "attention")

DropoutShare = Annotated[float, Field(ge=0, le=0.999)]


def check_pooling(value: str) -> str:
    """Refuse a pooling that is neither a name nor several different names joined by `+`."""
    names = value.split("+")
    unknown = [name for name in names if name not in POOLING_NAMES]
    if unknown:
        raise ValueError(f"{must_be_one_of(unknown[0], POOLING_NAMES)}; several are joined by +")
    if len(set(names)) < len(names):
        raise ValueError("names one twice")
    return value


class ClassifierArguments(TypedDict, total=False):
    """conf/model/lstm.yaml, which explains each key and holds its default.

    Other keys are allowed here: they are compared with the signature of `_target_` once that is imported.
    """

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    members: Required[Count]
    cell: Literal["lstm", "gru", "rnn"]
    embedding_size: Count
    hidden_size: Count
    layers: Count
    bidirectional: bool
    pooling: Annotated[str, AfterValidator(check_pooling)]
    layout: Literal["auto", "padded", "packed"]
    dropout: DropoutShare
    variational: bool
    token_dropout: DropoutShare
    number_noise: NonNegative


class CustomArguments(TypedDict, total=False):
    """The arguments of a model of another package, whose names and values may be anything."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    members: Required[Count]


def _origin(model: Any) -> str:
    target = model.get("_target_") if isinstance(model, dict) else None
    return "built-in" if not isinstance(target, str) or target.startswith("seqclf.") else "custom"


ModelArguments = Annotated[
    Annotated[ClassifierArguments, Tag("built-in")] | Annotated[CustomArguments, Tag("custom")], Discriminator(_origin)
]
