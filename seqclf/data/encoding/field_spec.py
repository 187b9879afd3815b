"""Specs of encoded fields: names, sizes and widths of the inputs of a model.

Typed dicts and not dataclasses: specs travel in checkpoints, which hold plain values alone, and are handed to models of
other packages.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class CategorySpec(TypedDict):
    """A field of ids (B, T) int64 below `size`. `vector_size`: dimensions of its pretrained vectors, if it has any."""

    name: str
    kind: Literal["category"]
    size: int
    vector_size: NotRequired[int]


class NumberSpec(TypedDict):
    """A field of (B, T, `width`) float32. `scaled`: by channel, True if it has a standard deviation of about 1.

    Masks, sines and cosines are not scaled. Without `scaled`, all channels are.
    """

    name: str
    kind: Literal["number"]
    width: int
    scaled: NotRequired[list[bool]]


FieldSpec = CategorySpec | NumberSpec
