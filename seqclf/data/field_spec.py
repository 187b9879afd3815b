"""Specs of encoded fields: the type, shape and size of one input of a model.

A token is a category, a bag or a number. A tree field also has an array of parents. `INPUT_KINDS` says what each kind
offers, and nothing else branches on the kind. Specs are typed dicts, because checkpoints and models of other packages
get plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

PARENTS, NODE_LABELS = "parents", "node_labels"  # names of the arrays that describe a tree
COMBINATIONS = ("mean", "sum", "max")


class InputKind(NamedTuple):
    """Traits of the inputs of one kind: they hold ids of a vocabulary, numbers (float32), or the parents of a tree.

    `size_key`: key of the number of ids or channels in the spec. `unknown_id`: the id of unknown values, None without
    ids. `has_several`: True for several ids per token.
    """

    size_key: str = ""
    unknown_id: int | None = None
    has_several: bool = False
    has_numbers: bool = False
    is_tree: bool = False


INPUT_KINDS = {
    "category": InputKind("size", unknown_id=0),
    "bag": InputKind("size", unknown_id=1, has_several=True),
    "number": InputKind("width", has_numbers=True),
    PARENTS: InputKind(is_tree=True),
}


class CategorySpec(TypedDict):
    """A field with one id per token: (B, T) int64, below `size`, 0 for unknown values.

    `vector_size`: dimensions of pretrained vectors, if there are any. `static`: True for (B,) ids, one per sequence.
    """

    name: str
    kind: Literal["category"]
    size: int
    vector_size: NotRequired[int]
    static: NotRequired[bool]


class BagSpec(TypedDict):
    """A field with several ids per token: (B, T, K) int64, below `size`, 0 for padding, 1 for unknown values.

    K is the largest number of ids of a token in the batch; the ids come first, zeros fill the rest. `combine`: `mean`,
    `sum` or `max` of the vectors of a token's ids.
    """

    name: str
    kind: Literal["bag"]
    size: int
    combine: str


class NumberSpec(TypedDict):
    """A field of numbers: (B, T, `width`) float32. Keys that a spec lacks are the same for all channels.

    `scaled`: True for each channel with a standard deviation of about 1 (by default all), False for masks, sines and
    cosines. `within`: standard deviation of each channel within sequences, at most 1 (the default); the noise of
    training is proportional to it. `constant`: True for each channel with one value per sequence, such as its level (by
    default none). `masked`: number W of values that may be missing: the first W channels, followed by their W masks, 1
    where present (by default 0). `static`: True for numbers per sequence, (B, `width`) float32.
    """

    name: str
    kind: Literal["number"]
    width: int
    scaled: NotRequired[list[bool]]
    within: NotRequired[list[float]]
    constant: NotRequired[list[bool]]
    masked: NotRequired[int]
    static: NotRequired[bool]


class ParentsSpec(TypedDict):
    """The parents of the nodes of a tree: (B, T) int64 positions in the sequence, -1 for the root, the last node.

    Children come before their parents. `node_classes`: for each tag, the code of the class of the same name, or -1. The
    array `node_labels` holds the tag number of each node (see `kinds.tree`).
    """

    name: str
    kind: Literal["parents"]
    node_classes: list[int]


TokenSpec = CategorySpec | BagSpec | NumberSpec
FieldSpec = TokenSpec | ParentsSpec


def kind_of(spec: Mapping[str, Any]) -> InputKind:
    """Return what the inputs of a field hold."""
    return INPUT_KINDS[spec["kind"]]


def size_of(spec: Mapping[str, Any]) -> int:
    """Return the number of ids or of channels of a field. Parents of a tree have none."""
    return spec[kind_of(spec).size_key]


def token_specs(fields: Iterable[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the fields with tokens, without static fields and the parents of a tree."""
    return [spec for spec in fields if not kind_of(spec).is_tree and not spec.get("static")]  # type: ignore[misc]


def static_specs(fields: Iterable[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the static fields, which have one value per sequence."""
    return [spec for spec in fields if not kind_of(spec).is_tree and spec.get("static")]  # type: ignore[misc]


def number_specs(fields: Iterable[FieldSpec]) -> list[NumberSpec]:
    """Return the specs of the fields of numbers."""
    return [spec for spec in fields if kind_of(spec).has_numbers]  # type: ignore[misc]


def id_specs(fields: Iterable[FieldSpec]) -> list[CategorySpec | BagSpec]:
    """Return the specs of the fields of ids."""
    return [spec for spec in fields if kind_of(spec).unknown_id is not None]  # type: ignore[misc]


def tree_spec(fields: Iterable[FieldSpec]) -> ParentsSpec | None:
    """Return the spec of the parents of a tree, None if the fields are no tree."""
    return next((spec for spec in fields if kind_of(spec).is_tree), None)  # type: ignore[return-value]


def scaled_flags(spec: NumberSpec) -> list[bool]:
    """Return True for each channel with a standard deviation of about 1."""
    return spec.get("scaled", [True] * spec["width"])


def input_axes(spec: Mapping[str, Any]) -> list[str | int]:
    """Return the names or sizes of the axes of a model input.

    >>> input_axes({"name": "x", "kind": "number", "width": 2})
    ['batch', 'time', 2]
    >>> input_axes({"name": "country", "kind": "category", "size": 9, "static": True})
    ['batch']
    """
    last = [f"{spec['name']}_values"] if kind_of(spec).has_several else []
    channels = [size_of(spec)] if kind_of(spec).has_numbers else []
    return ["batch", *([] if spec.get("static") else ["time"]), *last, *channels]
