"""`_target_` dicts become objects, and nothing else becomes anything."""

import pytest

from seqclf.build import build, locate
from seqclf.errors import InputError


class Shape:
    def __init__(self, *, sides: int, name: str = "shape"):
        self.sides, self.name = sides, name


class Hoop(Shape):
    def __init__(self, *, radius: float):
        if radius < 0:
            raise ValueError(f"radius has to be positive, but got {radius}")
        super().__init__(sides=0)


class Square(Shape):
    def __init__(self, **options):
        super().__init__(sides=4, **options)


HERE = __name__


def test_a_target_is_called_with_the_other_keys_and_extras():
    made = build({"_target_": f"{HERE}.Shape", "sides": 3}, Shape, name="triangle")
    assert (type(made), made.sides, made.name) == (Shape, 3, "triangle")


def test_a_subclass_will_do_and_the_config_is_left_alone():
    config = {"_target_": f"{HERE}.Square"}
    assert build(config, Shape).sides == 4
    assert config == {"_target_": f"{HERE}.Square"}


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "subprocess.Popen", "pathlib.Path"])
def test_only_the_kind_asked_for_is_ever_called(target, tmp_path):
    with pytest.raises(InputError, match=rf"_target_={target}: is not a Shape"):
        build({"_target_": target, "command": f"touch {tmp_path / 'harm'}"}, Shape)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["no_such_module.Thing", f"{HERE}.Nothing", "Shape", "", ".", "seqclf."])
def test_what_is_nowhere_is_refused_by_name(target):
    with pytest.raises(InputError, match=f"_target_={target}: cannot be imported"):
        locate(target)


@pytest.mark.parametrize(("options", "word"), [({"corners": 3}, "corners"), ({}, "sides")])
def test_wrong_arguments_name_the_target_and_the_argument(options, word):
    with pytest.raises(InputError, match=rf"{HERE}\.Shape: .*{word}"):
        build({"_target_": f"{HERE}.Shape", **options}, Shape)


def test_a_value_that_is_refused_names_the_target():
    with pytest.raises(InputError, match=rf"{HERE}\.Hoop: radius has to be positive, but got -1"):
        build({"_target_": f"{HERE}.Hoop", "radius": -1}, Shape)


def test_an_input_error_is_passed_on_as_it_is():
    config = {"_target_": "seqclf.models.pooling.Pooling", "kind": "sum", "size": 4, "backward_size": 0}
    with pytest.raises(InputError, match=r"^model\.pooling=sum: must be one of"):
        build(config)
