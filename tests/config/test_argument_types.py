"""Values of arguments, checked by the types that functions and classes declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import pytest
import torch
from pydantic import Field

from seqclf.config.argument_types import check_values
from seqclf.config.options import Count, Share
from seqclf.errors import InputError

if TYPE_CHECKING:
    from decimal import Decimal


class Plain:
    def __init__(self, size: Count, ratio: Annotated[float | None, Field(gt=0)] = None, kind: str = "x", other=None):
        pass


@dataclass
class Parent:
    size: Count


@dataclass
class Child(Parent):
    ratio: Share


class Unresolved:
    def __init__(self, size: Count, price: Decimal):
        pass


class Switch:
    def __init__(self, on: bool, auto: bool | None = None):
        pass


class Nested:
    def __init__(
        self,
        betas: Annotated[tuple[float, float], "of the moments"] = (0.9, 0.99),
        weight: Annotated[torch.Tensor, "C"] | None = None,
        power: Annotated[float, Field(gt=0)] | None = None,
        scales: list[Annotated[float, Field(gt=0)]] = [],  # noqa: B006
    ):
        pass


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (Plain, {"size": 0}, "key.size=0: must be at least 1"),
        (Plain, {"size": 1, "ratio": 0}, "key.ratio=0: must be above 0, or null"),
        (Child, {"size": 1, "ratio": 2}, "key.ratio=2: must be at most 1"),
        (Child, {"size": "many", "ratio": 1}, "key.size=many: must be a whole number"),
        (Switch, {"on": 1}, "key.on=1: must be true or false"),
        (Switch, {"on": True, "auto": "yes"}, "key.auto=yes: must be true or false, or null"),
        (Nested, {"betas": [0.9, "0.99"]}, "key.betas=0.99: must be a number"),
        (Nested, {"power": -1}, "key.power=-1: must be above 0, or null"),
        (Nested, {"scales": [1, -1]}, "key.scales=-1: must be above 0"),
    ],
)
def test_a_value_that_its_type_refuses_is_named_by_key(function, arguments, message):
    with pytest.raises(InputError) as caught:
        check_values("key", function, arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (Plain, {"size": 1, "ratio": None, "kind": 3, "other": object(), "unknown": -1}),
        (Plain, {}),
        (Switch, {"on": False, "auto": None}),
        (Unresolved, {"size": 0, "price": 1}),
        (dict, {"a": 1}),
        (Nested, {"betas": [0.9, 0.99], "weight": [1.0, 2.0], "power": None, "scales": [1]}),
    ],
)
def test_values_without_a_declared_type_may_be_anything(function, arguments):
    check_values("key", function, arguments)
