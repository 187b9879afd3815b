"""`_target_` blocks are checked by the signature and types of their class, and become objects of that class alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest
import torch
from pydantic import Field

from seqclf.config.build import TargetOf, build, check, check_values, generate, locate, targets
from seqclf.errors import InputError
from seqclf.settings.base import Count, Share, read_trust

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


class Shape:
    def __init__(self, *, sides: int, name: str = "shape"):
        self.sides, self.name = sides, name


HERE = __name__


class Whole:
    def __init__(self, fields, parts: list[str | Annotated[dict[str, Any], TargetOf(Plain, ("fields",))]], first=None):
        pass


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"parts": ["a", {"size": 0}]}, "key.parts[1]: names no class; write +key.parts[1]._target_=CLASS"),
        ({"parts": [{"_target_": f"{HERE}.Plain", "size": 0}]}, "key.parts[0].size=0: must be at least 1"),
        ({"parts": [{"_target_": f"{HERE}.Plain", "fields": 1}]}, "key.parts[0].fields: no such argument of Plain"),
        ({"parts": [{"_target_": f"{HERE}.Shape"}]}, f"key.parts[0]._target_={HERE}.Shape: is not a Plain"),
        ({"fields": 1}, "key.fields: no such argument of Whole; it takes parts, first"),
        ({"parst": []}, "key.parst: no such argument of Whole; did you mean 'parts'?"),
    ],
)
def test_a_block_and_its_parts_are_checked_by_their_signatures(block, line):
    with pytest.raises(InputError) as caught:
        check({"_target_": f"{HERE}.Whole", **block}, Whole, ["fields"], "key")
    assert str(caught.value).startswith(line)


def test_a_target_is_called_with_the_other_keys_and_extras():
    shape = build({"_target_": f"{HERE}.Shape", "sides": 3}, Shape, name="triangle")
    assert (type(shape), shape.sides, shape.name) == (Shape, 3, "triangle")


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "subprocess.Popen", "pathlib.Path"])
def test_only_subclasses_of_the_expected_class_are_called(target, tmp_path):
    with pytest.raises(InputError, match=rf"_target_={target}: is not a Shape"):
        build({"_target_": target, "command": f"touch {tmp_path / 'harm'}"}, Shape)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["no_such_module.Thing", f"{HERE}.Nothing", "Shape", "", ".", "seqclf."])
def test_a_target_that_cannot_be_imported_is_named(target):
    with pytest.raises(InputError, match=f"_target_={target}: cannot be imported"):
        locate(target)


@pytest.mark.parametrize("target", ["os.system", "shutil.rmtree", "posix.system", "builtins.print"])
def test_a_function_of_python_writes_no_dataset(target, tmp_path):
    with pytest.raises(InputError, match=rf"data\.generator\._target_={target}: is of Python itself; name"):
        generate({"_target_": target, "command": "touch harm"}, tmp_path)


@pytest.mark.parametrize("target", ["seqclf.fit", "seqclf.api.fit.fit", "seqclf.runs.bundle_export.write_bundle"])
def test_of_this_package_only_a_generator_writes_a_dataset(target, tmp_path):
    """A received run may name a function that trains anything, and so runs the code of a network."""
    with pytest.raises(InputError, match="is no generator; name one that writes a dataset"):
        generate({"_target_": target, "data": "t.csv", "label": "label"}, tmp_path)


@pytest.mark.parametrize("target", [f"{HERE}.Shape", f"{HERE}.harmless", "numpy.save", "torch.hub.load"])
def test_only_a_function_with_a_folder_writes_a_dataset(target, tmp_path):
    with pytest.raises(InputError, match="is not a function that writes a dataset into its argument folder"):
        generate({"_target_": target}, tmp_path)


def harmless(**options):
    raise AssertionError("was called")


def write_rows(*, folder, rows):
    (folder / "rows").write_text(str(rows))


def test_a_function_of_any_package_writes_a_dataset(tmp_path):
    generate({"_target_": f"{HERE}.write_rows", "rows": 3}, tmp_path)
    assert (tmp_path / "rows").read_text() == "3"
    with pytest.raises(InputError, match=r"^data\.generator\.columns: no such argument of write_rows; it takes rows"):
        generate({"_target_": f"{HERE}.write_rows", "columns": 3}, tmp_path)
    with pytest.raises(InputError, match=r"^data\.generator\.rows: missing; write_rows needs it"):
        generate({"_target_": f"{HERE}.write_rows"}, tmp_path)


@pytest.mark.parametrize("value", [5, ["a", 5], {"a": 1}, "a b", "a;b", ""])
def test_trust_names_packages(value):
    with pytest.raises(InputError, match=r"^trust=.*: must be a package, a list of packages, true or null"):
        read_trust(value)


def test_trust_is_read_as_packages_or_a_boolean():
    values = (None, True, "a", ["a", "b.c"], [])
    assert [read_trust(value) for value in values] == [False, True, ("a",), ("a", "b.c"), ()]


def test_every_target_of_a_config_is_listed_with_its_key():
    settings = {"_target_": "a.Net", "encoder": {"_target_": "b.Conv", "parts": [{"_target_": "c.Part"}, 3]}, "x": 1}
    expected = {
        "model._target_": "a.Net",
        "model.encoder._target_": "b.Conv",
        "model.encoder.parts[0]._target_": "c.Part",
    }
    assert dict(targets(settings, "model")) == expected
    deep = {"_target_": "a.Net"}
    for _ in range(10_000):
        deep = {"part": deep}
    assert [target for _, target in targets(deep, "model")] == ["a.Net"]
