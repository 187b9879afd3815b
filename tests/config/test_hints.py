"""Keys and choices that a command does not have: the hint is the argument to type."""

import pytest

from seqclf.config.command_keys import Command
from seqclf.config.hints import ALIASES, choice_hint, key_hint
from seqclf.config.hydra_config import compose_config
from seqclf.config.override_checks import HydraArguments
from seqclf.settings.data_settings import DataOptions

COMMANDS = ("train", "search", "predict", "evaluate", "export")
KEYS = {key for name in COMMANDS for key in Command(name).defaults({"model": "lstm"})}


def test_names_of_other_libraries_stand_for_keys_that_exist():
    assert {path for paths in ALIASES.values() for path in paths} <= KEYS and len(ALIASES) <= 25


@pytest.mark.parametrize(
    ("command", "argument", "hint"),
    [
        ("train", "optimizer.learning_rate=1", "write optimizer.lr=1"),
        ("train", "bathing.max_tokens=100", "write batching.max_tokens=100"),
        ("train", "optimizer.momentum=0.8", "write optimizer=sgd optimizer.momentum=0.8"),
        ("train", "optimizer.eps=1e-6", "to add a new key, write +optimizer.eps=1e-6"),
        ("train", "device=cuda", "write trainer.accelerator=cuda"),
        ("train", "modle=gru", "write model=gru"),
        ("train", "verbose=1", ""),
        ("predict", "ckpt=b", "write bundle=b"),
        ("describe", "input=x.csv", "write data=files data.train=x.csv"),
    ],
)
def test_a_hint_is_the_argument_to_type(command, argument, hint):
    key, _, value = argument.partition("=")
    assert key_hint(Command(command), key, value, {}) == hint


def test_a_file_is_no_choice_of_data():
    advice = "write data=files 'data.train=my data.csv' data.label=COLUMN"
    assert choice_hint(Command("train"), "data", "my data.csv") == advice


@pytest.mark.parametrize("data", ["toy", "files"])
@pytest.mark.parametrize("typed", ["data.fields={words: {kind: text}, n: null}", "data.fields.words={kind: text}"])
def test_a_field_is_declared_alone_or_in_a_mapping(data, typed):
    arguments = HydraArguments("train", [f"data={data}", typed, "data.static.age=number"])
    options = compose_config("train", arguments.for_hydra()).plain()["data"]
    of_data = {"tokens": "category"} if data == "toy" else {}
    assert DataOptions.build(**{**options, "label": "y"}).fields == {**of_data, "words": {"kind": "text"}}
    assert options["static"] == {"age": {"kind": "number"}}


@pytest.mark.parametrize("first", ["data.fields.amount=number", "data.fields={amount: number}"])
def test_options_are_added_to_a_kind_that_was_typed_before(first):
    arguments = HydraArguments("train", ["data=files", first, "data.fields.amount.missing=mean"])
    fields = compose_config("train", arguments.for_hydra()).plain()["data"]["fields"]
    assert fields == {"amount": {"kind": "number", "missing": "mean"}}


@pytest.mark.parametrize(
    ("group", "value", "advice"),
    [
        ("experiment", "imbd", "write experiment=imdb"),
        ("decision", "min_recall", "--help decision lists its keys"),
        ("experiment", "my/foo.yaml", "for FOLDER/experiment/foo.yaml, write --config-dir=FOLDER experiment=foo"),
    ],
)
def test_a_choice_that_a_group_lacks_is_corrected(group, value, advice):
    assert choice_hint(Command("train"), group, value) == advice


def test_the_variable_of_an_experiment_is_named():
    assert key_hint(Command("train"), "data.path", "d", {"experiment": "trec"}) == "write path=d"
