"""Specs of encoded fields: the type, shape and size of one input of a model.

A token is a category, a bag or a number. A tree field also has an array of parents. Specs are typed dicts, because
checkpoints and models of other packages get plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

SIZE_KEYS = {"category": "size", "bag": "size", "number": "width"}  # dict token kind → key of the size in the spec
PARENTS, NODE_LABELS = "parents", "node_labels"  # names of the arrays that describe a tree
UNKNOWN_IDS = {"category": 0, "bag": 1}  # dict token kind → id that stands for unknown values
COMBINATIONS = ("mean", "sum", "max")


class CategorySpec(TypedDict):
    """A field with one id per token: (B, T) int64, below `size`, 0 for unknown values.

    `vector_size`: dimensions of pretrained vectors, if there are any. `static`: True for one id per sequence, (B,)
    int64.
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
    """The parents of the nodes of a tree: (B, T) int64 positions in the sequence, -1 for the root, which is the last
    node.

    Children come before their parents. `node_classes`: for each tag, the code of the class of the same name, or -1. The
    array `node_labels` holds the tag number of each node (see `kinds.tree`).
    """

    name: str
    kind: Literal["parents"]
    node_classes: list[int]


TokenSpec = CategorySpec | BagSpec | NumberSpec
FieldSpec = TokenSpec | ParentsSpec


def token_specs(fields: Iterable[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the fields with tokens, without static fields and the parents of a tree."""
    return [field for field in fields if field["kind"] != "parents" and not field.get("static")]


def static_specs(fields: Iterable[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the static fields, which have one value per sequence."""
    return [field for field in fields if field["kind"] != "parents" and field.get("static")]


def input_axes(spec: Mapping[str, Any]) -> list[str | int]:
    """Return the names or sizes of the axes of a model input.

    >>> input_axes({"name": "x", "kind": "number", "width": 2})
    ['batch', 'time', 2]
    >>> input_axes({"name": "country", "kind": "category", "size": 9, "static": True})
    ['batch']
    """
    last: dict[str, list[str | int]] = {
        "category": [],
        "bag": [f"{spec['name']}_values"],
        "number": [spec.get("width", 1)],
        "parents": [],
    }
    return ["batch", *([] if spec.get("static") else ["time"]), *last[spec["kind"]]]


def input_type(spec: Mapping[str, Any]) -> type[np.generic]:
    """Return the NumPy type of the elements of a model input."""
    return np.float32 if spec["kind"] == "number" else np.int64
