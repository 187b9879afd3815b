"""Keys of a `_target_` dict are compared with the signature of its class."""

import pytest

from seqclf.config.targets import arguments_of, check_arguments, drop_unused
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
        (["colour", "sides"], r"shape\.colour: no such argument of Shape; it takes sides, name"),
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
    with pytest.raises(InputError, match=r"^shape\.sides: no such argument of Point; it takes none$"):
        check_arguments("shape", Point, ["sides"], provided=())


def test_a_key_that_is_not_taken_gives_way_unless_the_user_wrote_it():
    settings = {"_target_": "Shape", "sides": 3, "colour": "red", "size": 2}
    kept = drop_unused("shape", settings, arguments_of(Shape), written={"shape.size", "other.colour", "colour"})
    assert kept == {"_target_": "Shape", "sides": 3, "size": 2}
    assert drop_unused("shape", settings, arguments_of(Square), {"shape.colour"}) == {
        "_target_": "Shape",
        "colour": "red",
    }
