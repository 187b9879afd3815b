"""Specs of encoded fields: the inputs of a model, their types, shapes and sizes.

There are three kinds of inputs, and every field kind gives one of them. Typed dicts and not dataclasses: specs travel
in checkpoints, which hold plain values alone, and are handed to models of other packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

INPUT_KINDS = ("category", "bag", "number")
SIZE_KEYS = {"category": "size", "bag": "size", "number": "width"}
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


FieldSpec = CategorySpec | BagSpec | NumberSpec


def input_axes(spec: Mapping[str, Any]) -> list[str | int]:
    """Return the axes of an input: `batch`, `time`, and the width of a number, or NAME_values of a bag.

    >>> input_axes({"name": "x", "kind": "number", "width": 2})
    ['batch', 'time', 2]
    """
    last: dict[str, list[str | int]] = {
        "category": [],
        "bag": [f"{spec['name']}_values"],
        "number": [spec.get("width", 1)],
    }
    return ["batch", "time", *last[spec["kind"]]]


def input_type(spec: Mapping[str, Any]) -> type[np.generic]:
    """Return the type of an input's elements."""
    return np.float32 if spec["kind"] == "number" else np.int64
