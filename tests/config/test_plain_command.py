"""Commands without Hydra: values as they are written for Hydra, keys that are checked, and errors of one line."""

import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.config.documentation import Command, command_names
from seqclf.config.plain_command import compose_plain, read_value
from seqclf.config.typed_arguments import TypedArguments
from seqclf.errors import InputError

PREDICT = "seqclf.command_options.PredictConfig"
EVALUATE = "seqclf.command_options.EvaluateConfig"


def composed(name, *arguments):
    options = {"predict": PREDICT, "evaluate": EVALUATE}[name]
    return compose_plain(TypedArguments(name, arguments, options))


def test_commands_that_train_nothing_and_read_no_own_classes_need_no_hydra():
    plain = {name for name in command_names() if not Command(name).uses_hydra}
    assert plain == {"predict", "evaluate", "judge", "compare", "doctor", "report"}


@pytest.mark.parametrize(
    "text",
    [
        *("null", "true", "false", "1", "-1", "+3", "0.5", "1e-3", ".5", "inf", "word", "a b", "a/b.c", "1_000"),
        *("'a, b'", '"it\'s"', r"'it\'s'", "[a, b]", "[]", "[1, 0.5, null, 'x, y', true]", "{a: b}", "{a: [1, 2]}"),
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


def test_nested_keys_and_groups(tmp_path):
    assert composed("predict", "bundle=b", "ray.actors=3")["ray"]["actors"] == 3
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.yaml").write_text("# mine\ndefaults: [files]\n\ntest: rows.csv\nlabel: 2024_01\n")
    config = composed("evaluate", "bundle=b", f"--config-dir={tmp_path}", "data=mine", "data.group_by=[a, 7]")
    assert config["data"]["test"] == "rows.csv" and config["data"]["group_by"] == ["a", "7"]
    assert config["data"]["split"]["folds"] == 5 and config["data"]["header"] is None


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


def test_a_choice_that_refers_to_other_keys_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.yaml").write_text("# mine\ndefaults: [files]\n\ntest: ${oc.env:FOLDER}/rows.csv\n")
    arguments = ["bundle=b", f"--config-dir={tmp_path}", "data=mine"]
    with pytest.raises(InputError) as caught:
        composed("evaluate", *arguments)
    assert caught.value.remedy == "set data.test here"
    assert composed("evaluate", *arguments, "data.test=rows.csv")["data"]["test"] == "rows.csv"


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
