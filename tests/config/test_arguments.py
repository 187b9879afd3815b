"""Commands without Hydra: values as they are written for Hydra, keys that are checked, and errors of one line."""

import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.config.arguments import TypedArguments, compose_plain, read_value
from seqclf.config.command_keys import SETTINGS, Command
from seqclf.errors import InputError


def composed(name, *arguments):
    return compose_plain(TypedArguments(name, arguments))


def test_commands_that_train_nothing_and_read_no_own_classes_need_no_hydra():
    assert {name for name in SETTINGS if not Command(name).uses_hydra} == {"predict", "evaluate", "compare", "doctor"}


@pytest.mark.parametrize(
    "text",
    [
        *("null", "true", "false", "1", "-1", "+3", "0.5", "1e-3", ".5", "inf", "word", "a b", "a/b.c", "1_000"),
        *(
            "'a, b'",
            '"it\'s"',
            r"'it\'s'",
            "[a, b]",
            "[]",
            "[1, 0.5, null, 'x, y', true]",
            "{a: b}",
            "{a: [1, 2]}",
            "{yes: no, a: true, b: trueish}",
        ),
        *(r"'a\d, b'", r"'a\\'"),
    ],
)
def test_values_are_those_that_hydra_reads(text):
    expected = OverridesParser.create().parse_override(f"key={text}").value()
    expected = getattr(expected, "text", expected)  # a text in quotes
    found = read_value("key", text)
    assert (found, type(found)) == (expected, type(expected)) or [*map(str, found)] == [*map(str, expected)]


@pytest.mark.parametrize(
    "text", ["[1, 2]", '{"a": ["b"]}', "a, b: c?", "2024_01", "${oc.env:HOME}", "it's", "'a' and 'b'", "1e3", "true"]
)
def test_a_text_stands_for_itself(text):
    assert composed("predict", "bundle=b", f"sequence={text}")["sequence"] == text


def test_a_path_in_quotes_is_the_path_and_null_is_none():
    config = composed("predict", "bundle='a, b'", "input=null", "quote=''", "threads=2")
    assert (config["bundle"], config["input"], config["quote"], config["threads"]) == ("a, b", None, "", 2)


def test_nested_keys():
    assert composed("predict", "bundle=b", "ray.actors=3")["ray"]["actors"] == 3
    data = composed("evaluate", "bundle=b", "data=files", "data.label=2024_01", "data.group_by=[a, 7]")["data"]
    assert data["label"] == "2024_01" and data["group_by"] == ["a", "7"]
    assert data["split"]["folds"] == 5 and data["header"] is None


@pytest.mark.parametrize(
    ("arguments", "named", "remedy"),
    [
        (["bundel=b"], "bundel", "write bundle=b"),
        (["bundle=b", "+threads=1"], "threads", ""),
        (["bundle=b", "ray=null"], "ray=null", "ray.address=VALUE"),
        (["bundle=b", "ray.actor=1"], "ray.actor", "ray.actors=1"),
        (["bundle=b", "--multirun"], "--multirun", ""),
        (["bundle=b", "--threads=2"], "--threads=2", "threads=2"),
        (["somewhere"], "somewhere", ""),
        (["rows.csv"], "rows.csv", "write input=rows.csv"),
        ([], "bundle", "bundle=VALUE"),
    ],
)
def test_wrong_arguments_are_one_line_with_what_to_write(arguments, named, remedy):
    with pytest.raises(InputError) as caught:
        composed("predict", *arguments)
    assert caught.value.where == named and remedy in str(caught.value.remedy)


def test_keys_of_own_choices_are_known_and_others_are_not(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine.yaml").write_text("# mine\ndefaults: [lstm]\n\nwidth: 5\n")
    arguments = [f"--config-dir={tmp_path}", "model=mine", "model.width=6", "model.layers=2", "+model.depth=1"]
    TypedArguments("train", arguments).check_keys()
    for unknown in ("model.height=1", "+mine=1"):
        with pytest.raises(InputError, match="no such key"):
            TypedArguments("train", [*arguments, unknown]).check_keys()


def test_an_unknown_key_is_found_before_hydra_is_imported():
    script = (
        "import sys; sys.argv = ['seqclf', 'train', 'optimizer.lrr=1']\n"
        "from seqclf.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as ended: print(ended.code, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    code, *loaded = done.stdout.split()
    assert code == "2" and done.stderr == "error: optimizer.lrr: no such key; write optimizer.lr=1\n"
    assert not {"hydra", "omegaconf", "torch"} & set(loaded)


def test_a_command_without_hydra_does_not_import_it(tmp_path):
    script = (
        "import sys; sys.argv = ['seqclf', 'predict', 'bundle=nowhere', 'sequence=a']\n"
        "from seqclf.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as ended: print(ended.code, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    code, *loaded = done.stdout.split()
    assert code == "2" and done.stderr.startswith("error: bundle=nowhere: ")
    assert not {"hydra", "omegaconf", "torch", "lightning", "sklearn", "scipy", "onnx"} & set(loaded)
