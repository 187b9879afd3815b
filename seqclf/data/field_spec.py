"""Specs of encoded fields: the inputs of a model, their types, shapes and sizes.

There are three kinds of tokens, and every field kind gives one of them. A tree also gives the parents of its nodes.
Typed dicts and not dataclasses: specs travel in checkpoints, which hold plain values alone, and are handed to models of
other packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

TOKEN_KINDS = ("category", "bag", "number")
INPUT_KINDS = (*TOKEN_KINDS, "parents")
SIZE_KEYS = {"category": "size", "bag": "size", "number": "width"}
PARENTS, NODE_LABELS = "parents", "node_labels"  # arrays of a tree
UNKNOWN_IDS = {"category": 0, "bag": 1}
COMBINATIONS = ("mean", "sum", "max")


class CategorySpec(TypedDict):
    """A field of ids (B, T) int64 below `size`, 0 for unknown values.

    `vector_size`: dimensions of its pretrained vectors, if it has any.
    """

    name: str
    kind: Literal["category"]
    size: int
    vector_size: NotRequired[int]


class BagSpec(TypedDict):
    """A field of several ids per token, (B, T, K) int64 below `size`: 0 for no value, 1 for unknown values.

    The ids of a token come first. K is the largest number of them in the batch. `combine`: mean, sum or max of their
    vectors.
    """

    name: str
    kind: Literal["bag"]
    size: int
    combine: str


class NumberSpec(TypedDict):
    """A field of (B, T, `width`) float32. `scaled`: by channel, True if it has a standard deviation of about 1.

    Masks, sines and cosines are not scaled. Without `scaled`, all channels are.
    """

    name: str
    kind: Literal["number"]
    width: int
    scaled: NotRequired[list[bool]]


class ParentsSpec(TypedDict):
    """The parent of each node of a tree, (B, T) int64: its index in the sequence, -1 for the root, which comes last.

    Children come before their parents. `node_classes`: by tag of the tree, the class of the same name, or -1. The array
    `node_labels` holds the numbers of tags (see `kinds.tree`).
    """

    name: str
    kind: Literal["parents"]
    node_classes: list[int]


TokenSpec = CategorySpec | BagSpec | NumberSpec
FieldSpec = TokenSpec | ParentsSpec


def token_specs(fields: Iterable[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of tokens, without those of a structure over them."""
    return [field for field in fields if field["kind"] != "parents"]


def input_axes(spec: Mapping[str, Any]) -> list[str | int]:
    """Return the axes of an input: `batch`, `time`, and the width of a number, or NAME_values of a bag.

    >>> input_axes({"name": "x", "kind": "number", "width": 2})
    ['batch', 'time', 2]
    """
    last: dict[str, list[str | int]] = {
        "category": [],
        "bag": [f"{spec['name']}_values"],
        "number": [spec.get("width", 1)],
        "parents": [],
    }
    return ["batch", "time", *last[spec["kind"]]]


def input_type(spec: Mapping[str, Any]) -> type[np.generic]:
    """Return the type of an input's elements."""
    return np.float32 if spec["kind"] == "number" else np.int64
