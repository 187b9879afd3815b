"""Specs of encoded fields. A spec describes one input of a model: its type, shape and size.

The tokens of each field kind are of one of three token kinds: category, bag or number. A tree field also produces an
array with the parent of each node. Specs are typed dicts and not dataclasses, because checkpoints hold only plain
values. Models of other packages get specs as plain dicts too.
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

    `vector_size`: number of dimensions of the pretrained vectors; missing if the field has no pretrained vectors.
    `static`: True for a field with one id per sequence, (B,) int64.
    """

    name: str
    kind: Literal["category"]
    size: int
    vector_size: NotRequired[int]
    static: NotRequired[bool]


class BagSpec(TypedDict):
    """A field with several ids per token: (B, T, K) int64, below `size`, 0 for padding, 1 for unknown values.

    K is the largest number of ids of a token in the batch. In the last dimension, the ids of a token come first, and
    zeros fill the rest. `combine`: function that combines the vectors of a token's ids into one vector: mean, sum or
    max.
    """

    name: str
    kind: Literal["bag"]
    size: int
    combine: str


class NumberSpec(TypedDict):
    """A field of numbers: (B, T, `width`) float32.

    `scaled`: list with True for each channel that has a standard deviation of about 1, and False for masks, sines and
    cosines. If the spec lacks `scaled`, every channel has a standard deviation of about 1. `within`: list with the
    standard deviation of each channel within sequences, at most 1. The noise of training is proportional to it. If the
    spec lacks `within`, it is 1 for every channel. `constant`: list with True for each channel that has the same value
    in all tokens of a sequence, such as the level of the sequence. If the spec lacks `constant`, there is no such
    channel. `masked`: number W of values that may be missing. They are the first W channels, and the next W are their
    masks: 1 where the value is present. If the spec lacks `masked`, there are no masks. `static`: True for a field with
    numbers per sequence, (B, `width`) float32.
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
    """The parents of the nodes of a tree: (B, T) int64.

    Each value is the position of the parent in the sequence, or -1 for the root. Children come before their parents, so
    the root is the last node. `node_classes`: for each tag of the tree, the class code of the class with the same name,
    or -1 if there is no such class. The array `node_labels` holds the tag number of each node (see `kinds.tree`).
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
