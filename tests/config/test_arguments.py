"""Keys of a `_target_` dict are compared with the signature of its class."""

import pytest

from seqclf.config.targets import check_arguments
from seqclf.errors import InputError


class Shape:
    def __init__(self, *, sides: int, name: str = "shape"):
        self.sides, self.name = sides, name


class Square(Shape):
    def __init__(self, **options):
        super().__init__(sides=4, **options)


class Point(Shape):
    def __init__(self):
        super().__init__(sides=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sids"], r"shape\.sids: no such argument of Shape; did you mean 'sides'"),
        (["colour", "sides"], r"shape\.colour: no such argument of Shape; it takes sides, name; ~shape.colour removes"),
        (["name"], r"shape\.sides: missing; Shape needs it"),
    ],
)
def test_arguments_are_compared_with_the_signature(arguments, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check_arguments("shape", Shape, arguments, provided=set())


def test_provided_and_variable_arguments_are_accepted():
    check_arguments("shape", Shape, ["name"], provided={"sides"})
    check_arguments("shape", Square, ["colour"], provided=set())
    check_arguments("shape", print, ["end"], provided=set())


def test_a_class_without_arguments_says_so():
    with pytest.raises(InputError, match=r"^shape\.sides: no such argument of Point; it takes none; ~shape.sides rem"):
        check_arguments("shape", Point, ["sides"], provided=())
