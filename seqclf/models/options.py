"""The arguments of the built-in model, checked without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from seqclf.config.options import Count, NonNegative, ZeroOrMore
from seqclf.config.suggestions import must_be_one_of
from seqclf.config.targets import is_foreign
from seqclf.errors import InputError, RefusedValueError

TRANSFORMER = "seqclf.models.transformer.Transformer"
ADAPTIVE = "seqclf.models.adaptive.AdaptiveClassifier"
POOLING_NAMES = ("last", "mean", "max", "attention")

ANY_KEYS = ConfigDict(extra="allow", strict=True)
DropoutShare = Annotated[float, Field(ge=0, le=0.999)]


def check_pooling(value: str) -> str:
    """Refuse a pooling that is neither a name nor several different names joined by `+`."""
    names = value.split("+")
    unknown = [name for name in names if name not in POOLING_NAMES]
    if unknown:
        problem, hint = must_be_one_of(unknown[0], POOLING_NAMES)
        raise RefusedValueError(problem, "; ".join(filter(None, [hint, "several are joined by +"])))
    if len(set(names)) < len(names):
        raise RefusedValueError("names one twice")
    return value


def check_heads(hidden_size: int, heads: int) -> None:
    """Raise InputError unless each attention head gets the same, even number of channels.

    Even, because rotary positions rotate channels in pairs.

    >>> check_heads(hidden_size=96, heads=5)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model.heads=5: does not divide model.hidden_size=96; set model.heads=4 or \
    model.hidden_size=100
    """
    channels, rest = divmod(hidden_size, heads)
    if not rest and channels % 2 == 0:
        return
    problem = f"does not divide model.hidden_size={hidden_size}"
    if not rest:
        problem = f"gives heads of {channels} of the {hidden_size} channels of model.hidden_size, which must be even"
    remedies = [f"model.hidden_size={-(-hidden_size // (2 * heads)) * 2 * heads}"]
    if hidden_size % 2 == 0:
        divisors = [count for count in range(1, hidden_size // 2 + 1) if hidden_size // 2 % count == 0]
        remedies.insert(0, f"model.heads={min(divisors, key=lambda count: abs(count - heads))}")
    raise InputError(f"model.heads={heads}", problem, f"set {' or '.join(remedies)}")


def check_residual(layers: int, residual_layers: int) -> None:
    """Raise InputError unless there is a layer below the residual ones, whose inputs and outputs are of one size.

    >>> check_residual(layers=2, residual_layers=1)
    """
    if not 0 <= residual_layers < layers:
        raise InputError(
            f"model.residual_layers={residual_layers}",
            f"must be at least 0 and less than model.layers={layers}",
            "the first layer cannot be residual",
        )


class RecurrentArguments(TypedDict, total=False):
    """The arguments of the recurrent layers."""

    cell: Literal["lstm", "gru", "rnn"]
    hidden_size: Count
    layers: Count
    residual_layers: ZeroOrMore
    bidirectional: bool
    layout: Literal["auto", "padded", "packed"]


class TransformerArguments(TypedDict, total=False):
    """The arguments of the transformer encoder that the recurrent layers do not share."""

    heads: Count
    feed_forward: Literal["gelu", "swiglu"]
    expansion: Count


class BuiltinEncoder(RecurrentArguments, TransformerArguments, total=False):
    """The block `encoder` of an encoder of this package. Its arguments may also stand above it, in `model`."""

    __pydantic_config__ = ANY_KEYS  # type: ignore[misc]

    _target_: Required[str]
    dropout: DropoutShare
    variational: bool


class CustomArguments(TypedDict, total=False):
    """The arguments of a class of another package, whose names and values may be anything."""

    __pydantic_config__ = ANY_KEYS  # type: ignore[misc]

    _target_: Required[str]


class AdaptiveArguments(TypedDict, total=False):
    """The arguments of the adaptive network that the others do not share."""

    earliness: NonNegative


class HeadArguments(TypedDict, total=False):
    """The arguments of `SequenceClassifier`, whatever its encoder."""

    __pydantic_config__ = ANY_KEYS  # type: ignore[misc]

    _target_: Required[str]
    encoder: CustomArguments
    embedding_size: Count
    pooling: Annotated[str, AfterValidator(check_pooling)]
    dropout: DropoutShare
    variational: bool
    token_dropout: DropoutShare
    number_noise: NonNegative
    members: Count


class ClassifierArguments(HeadArguments, RecurrentArguments, TransformerArguments, AdaptiveArguments, total=False):
    """conf/model/lstm.yaml, transformer.yaml and adaptive.yaml, which explain each key and hold its default.

    Other keys are allowed here: they are compared with the signatures of the `_target_`s once these are imported.
    """

    __pydantic_config__ = ANY_KEYS  # type: ignore[misc]

    encoder: BuiltinEncoder  # type: ignore[misc]  # narrower: a config is not written to


class CustomModel(CustomArguments, total=False):
    """The arguments of a network of another package."""

    __pydantic_config__ = ANY_KEYS  # type: ignore[misc]

    members: Count


def _is_foreign(settings: Any) -> bool:
    target = settings.get("_target_") if isinstance(settings, dict) else None
    return isinstance(target, str) and is_foreign(target)


def _origin(model: Any) -> str:
    """Return the tag of the arguments of a model, by the packages that its network and its encoder come from."""
    if _is_foreign(model):
        return "custom"
    return "own encoder" if isinstance(model, dict) and _is_foreign(model.get("encoder")) else "built-in"


def check_encoder(model: Any) -> Any:
    """Refuse arguments of an encoder that do not fit each other. They may stand in the block `encoder` too."""
    encoder = model.get("encoder")
    arguments = {**model, **encoder} if isinstance(encoder, Mapping) else {}
    if arguments.get("_target_") == TRANSFORMER:
        if {"hidden_size", "heads"} <= set(arguments):
            check_heads(arguments["hidden_size"], arguments["heads"])
    elif {"layers", "residual_layers"} <= set(arguments):
        check_residual(arguments["layers"], arguments["residual_layers"])
    return model


def check_adaptive(model: Any) -> Any:
    """Refuse an adaptive network that would have to read a sequence twice."""
    if model["_target_"] != ADAPTIVE:
        return model
    if {**model, **model.get("encoder", {})}.get("bidirectional"):
        raise InputError(
            "model.bidirectional=true",
            "an adaptive model reads each sequence once, from its start",
            "set model.bidirectional=false",
        )
    refuse_members(model.get("members", 1))
    return model


def refuse_members(members: int) -> None:
    """Raise InputError for several members of an adaptive model."""
    if members != 1:
        raise InputError(
            f"model.members={members}",
            "an adaptive model is one network, as members would halt at different tokens",
            "set model.members=1",
        )


def one_member(model: Any) -> Any:
    """Set `members` where the config of another package leaves it out. No class takes it (see `build_classifier`)."""
    return {**model, "members": model.get("members", 1)}


ModelArguments = Annotated[
    Annotated[ClassifierArguments, AfterValidator(check_encoder), AfterValidator(check_adaptive), Tag("built-in")]
    | Annotated[HeadArguments, Tag("own encoder")]
    | Annotated[CustomModel, Tag("custom")],
    Discriminator(_origin),
    AfterValidator(one_member),
]
