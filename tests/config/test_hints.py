"""Keys and choices that a command does not have: the hint is the argument to type."""

import shlex

import pytest

from seqclf.config.composition import compose_config
from seqclf.config.documentation import Command
from seqclf.config.hints import BY_ALIAS, choice_hint, key_hint
from seqclf.config.override_checks import TypedArguments
from seqclf.errors import InputError

COMMANDS = ("train", "search", "bench", "predict", "evaluate", "export")
CHOSEN = [{"model": "lstm"}, {"model": "transformer"}]
KEYS = {key.path for name in COMMANDS for chosen in CHOSEN for key in Command(name).all_keys(chosen)}


def test_names_of_other_libraries_stand_for_keys_that_exist():
    assert {path for paths in BY_ALIAS.values() for path in paths} <= KEYS


COLUMNS = "fields are one mapping; write '~data.fields' '+data.fields={COLUMN: KIND}'"


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
        ("train", "fields={a: category}", COLUMNS.replace("COLUMN: KIND", "a: category")),
        ("train", "data.fields.x=1", COLUMNS.replace("COLUMN", "x")),
        ("train", "data.fields.events.kind=category", COLUMNS.replace("COLUMN: KIND", "events: category")),
        ("predict", "checkpoint=b", "write bundle=b"),
        ("predict", "text=hello", "write sequence=hello"),
        ("export", "model=x.ckpt", "write checkpoint=x.ckpt"),
        ("describe", "input=x.csv", "write data=files data.train=x.csv"),
        ("walkthrough", "bundle=x.ckpt", "write checkpoint=x.ckpt"),
        ("walkthrough", "file=x.csv", "write input=x.csv"),
        ("bench", "steps=4", "write updates=4"),
        ("bench", "bs=3", "write batch_size=3"),
    ],
)
def test_a_hint_is_the_argument_to_type(command, argument, hint):
    key, _, value = argument.partition("=")
    assert key_hint(Command(command), key, value, {}) == hint


def test_a_file_is_no_choice_of_data():
    advice = "write data=files 'data.train=my data.csv' data.label=COLUMN"
    assert choice_hint(Command("train"), "data", "my data.csv") == advice


def test_a_mapping_that_is_set_is_replaced_and_not_merged():
    error = TypedArguments("train", ["data.fields={items: category}"]).unknown_key("data.fields")
    assert error.remedy.endswith("write '~data.fields' '+data.fields={items: category}'")


@pytest.mark.parametrize(
    ("arguments", "advised"),
    [
        (["experiment=sst", "path=x"], "'~data.fields' '+data.fields={words: {kind: text, min_count: 2}}'"),
        (["experiment=listops", "path=x"], "'~data.fields' '+data.fields={words: {kind: text, min_count: 2}}'"),
        (["data=toy"], "'~data.fields' '+data.fields={words: {kind: text, min_count: 2}}'"),
        (["data=files"], "'data.fields={words: {kind: text, min_count: 2}}'"),
    ],
)
def test_a_new_field_is_advised_in_the_form_that_the_data_takes(arguments, advised):
    typed = TypedArguments("train", [*arguments, "data.fields.words={kind: text, min_count: 2}"])
    line = str(typed.unknown_key("data.fields.words"))
    assert line == f"data.fields.words: no such key; fields are one mapping; write {advised}"
    fields = compose_config("train", [*arguments, *shlex.split(advised)]).config.data.fields
    assert fields == {"words": {"kind": "text", "min_count": 2}}


@pytest.mark.parametrize(
    ("group", "value", "advice"),
    [
        ("experiment", "imbd", "write experiment=imdb"),
        ("loss", "cross-entropi", "write loss=cross_entropy"),
        ("decision", "min_recall", "--help decision lists its keys"),
        ("experiment", "my/foo.yaml", "for FOLDER/experiment/foo.yaml, write --config-dir=FOLDER experiment=foo"),
    ],
)
def test_a_choice_that_a_group_lacks_is_corrected(group, value, advice):
    assert choice_hint(Command("train"), group, value) == advice


def test_the_variable_of_an_experiment_is_named():
    assert key_hint(Command("train"), "data.path", "d", {"experiment": "trec"}) == "write path=d"
    typed = TypedArguments("train", ["experiment=trec", "path=/data"])
    error = InputError("data.train", "no file matches '/data/train_5500.label'", "fix the query")
    assert typed.with_variable(error).remedy == "check path=/data (folder that holds the files)"
