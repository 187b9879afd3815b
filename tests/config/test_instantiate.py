"""`_target_` dicts become objects of the expected class, and nothing else is called."""

import pytest

from seqclf.config.targets import build, generate, locate, read_trust, targets
from seqclf.errors import InputError


class Shape:
    def __init__(self, *, sides: int, name: str = "shape"):
        self.sides, self.name = sides, name


HERE = __name__


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
    with pytest.raises(InputError, match=rf"data\.generator\._target_={target}: is of Python itself"):
        generate({"_target_": target, "command": "touch harm"}, tmp_path)


@pytest.mark.parametrize("target", ["seqclf.fit", "seqclf.api.fit.fit", "seqclf.runs.export.write_bundle"])
def test_of_this_package_only_a_generator_writes_a_dataset(target, tmp_path):
    """A received run may name a function that trains anything, and so runs the code of a network."""
    with pytest.raises(InputError, match="is no generator; name a function of your own"):
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
