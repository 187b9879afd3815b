"""Keys that a command does not have: the advice names the one that was meant."""

import shlex

import pytest

from seqclf.config.composition import compose_config
from seqclf.config.documentation import Command
from seqclf.config.key_advice import advise_choice, advise_key
from seqclf.config.key_aliases import BY_HABIT
from seqclf.config.override_checks import TypedArguments
from seqclf.errors import InputError

COMMANDS = ("train", "search", "bench", "predict", "evaluate", "export")
CHOSEN = [{"model": "lstm"}, {"model": "transformer"}]
KEYS = {key.path for name in COMMANDS for chosen in CHOSEN for key in Command(name).all_keys(chosen)}


def test_names_of_other_libraries_stand_for_keys_that_exist():
    assert {path for paths in BY_HABIT.values() for path in paths} <= KEYS


@pytest.mark.parametrize(
    ("command", "typed", "value", "advice"),
    [
        ("train", "optimizer.learning_rate", "1", "write optimizer.lr=1"),
        ("train", "trainer.lr", "1", "write optimizer.lr=1"),
        ("train", "bathing.max_tokens", "100", "write batching.max_tokens=100"),
        ("train", "optimizer.momentum", "0.8", "write optimizer=sgd optimizer.momentum=0.8"),
        ("train", "model.heads", "8", "write model=transformer model.heads=8"),
        ("train", "optimizer.eps", "1e-6", "to add a new key, write +optimizer.eps=1e-6"),
        ("train", "device", "cuda", "write trainer.accelerator=gpu"),
        ("train", "modle", "gru", "write model=gru"),
        ("train", "fields", "{a: category}", "write 'data.fields={a: category}'"),
        ("train", "verbose", "1", ""),
        ("predict", "checkpoint", "b", "write bundle=b"),
        ("predict", "text", "hello", "write sequence=hello"),
        ("evaluate", "input", "x.csv", "write data.test=x.csv"),
        ("export", "model", "x.ckpt", "write checkpoint=x.ckpt"),
        ("describe", "input", "x.csv", "write data=files data.train=x.csv"),
        ("walkthrough", "bundle", "x.ckpt", "write checkpoint=x.ckpt"),
        ("walkthrough", "file", "x.csv", "write input=x.csv"),
        ("bench", "steps", "4", "write updates=4"),
        (
            "train",
            "data.columns",
            "[a]",
            "fields are one mapping of columns to kinds; write 'data.fields={COLUMN: category}'",
        ),
        ("predict", "batch_size", "64", "rows are batched by their lengths; remove it"),
        (
            "train",
            "data.fields.events.kind",
            "category",
            "fields are one mapping; write '~data.fields' '+data.fields={events: category}'",
        ),
        ("train", "data.fields.x", "1", "fields are one mapping; write '~data.fields' '+data.fields={x: KIND}'"),
        ("bench", "bs", "3", "write batch_size=3"),
        ("train", "debug.steps", "5", "write debug=overfit_one_batch debug.steps=5"),
        (
            "walkthrough",
            "debug.steps",
            "5",
            "debug=overfit_one_batch is of seqclf train only; remove it, or use seqclf train",
        ),
    ],
)
def test_advice_is_the_argument_to_type(command, typed, value, advice):
    assert advise_key(Command(command), typed, value, {}) == advice


def test_a_batch_has_two_sizes():
    advice = advise_key(Command("train"), "batch_size", "64", {})
    assert advice.startswith("write batching.max_sequences=64 (") and "or batching.max_tokens=VALUE (" in advice


def test_a_file_is_no_choice_of_data():
    advice = "write data=files 'data.train=my data.csv' data.label=COLUMN"
    assert advise_choice(Command("train"), "data", "my data.csv") == advice


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
        ("loss", "ce", "write loss=cross_entropy"),
        ("decision", "min_recall", "write decision.min_recall=VALUE"),
        ("experiment", "my/foo.yaml", "for FOLDER/experiment/foo.yaml, write --config-dir=FOLDER experiment=foo"),
    ],
)
def test_a_choice_that_a_group_lacks_is_corrected(group, value, advice):
    assert advise_choice(Command("train"), group, value) == advice


def test_the_variable_of_an_experiment_is_named():
    assert advise_key(Command("train"), "data.path", "d", {"experiment": "trec"}) == "write path=d"
    typed = TypedArguments("train", ["experiment=trec", "path=/data"])
    error = InputError("data.train", "no file matches '/data/train_5500.label'", "fix the query")
    assert typed.with_variable(error).remedy == "check path=/data (folder that holds the files)"


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        ("optimizer.lr=0,01", "decimals follow a point: optimizer.lr=0.01"),
        ("seed=1,2", "for one run, write seed=1"),
        ("optimizer.lr=0.1,0.01", "for one run, write optimizer.lr=0.1"),
        ("logger=wandb,csv", "for one run, choose one: logger=wandb"),
        ("data.positive=a,b", "for one value, write \"data.positive='a,b'\""),
    ],
)
def test_values_joined_by_commas_get_a_remedy_for_one_run(argument, remedy):
    with pytest.raises(InputError) as refused:
        TypedArguments("train", [argument]).check()
    assert str(refused.value) == f"{argument}: several values are several runs, by -m; {remedy}"


def test_a_key_with_punctuation_is_escaped_and_not_quoted():
    with pytest.raises(InputError) as refused:
        TypedArguments("train", ["decision.min_recall={'with, comma': 0.8, b: 0.5}"]).check()
    remedy = r"write 'decision.min_recall={with\, comma: 0.8, b: 0.5}'"
    assert str(refused.value).endswith(f"keys in braces cannot be quoted; {remedy}")
    TypedArguments("train", [r"decision.min_recall={with\, comma: 0.8, b: 0.5}"]).check()
