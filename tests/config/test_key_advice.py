"""Keys that a command does not have: the advice names the one that was meant."""

import pytest

from seqclf.config.documentation import Command
from seqclf.config.habits import BY_HABIT
from seqclf.config.key_advice import advise_choice, advise_key
from seqclf.config.typed_arguments import TypedArguments

KEYS = {path for name in ("train", "search", "bench", "predict", "evaluate", "export") for path in
        [key.path for key in Command(name).all_keys()]}  # fmt: skip


def test_names_of_other_libraries_stand_for_keys_that_exist():
    assert {path for paths in BY_HABIT.values() for path in paths} <= KEYS


@pytest.mark.parametrize(
    ("command", "typed", "value", "advice"),
    [
        ("train", "optimizer.learning_rate", "1", "write optimizer.lr=1"),
        ("train", "trainer.lr", "1", "write optimizer.lr=1"),
        ("train", "bathing.max_tokens", "100", "write batching.max_tokens=100"),
        ("train", "optimizer.momentum", "0.8", "write optimizer=sgd optimizer.momentum=0.8"),
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
        ("bench", "steps", "4", "write updates=4"),
        ("bench", "bs", "3", "write batch_size=3"),
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
    line = TypedArguments("train", ["data.fields={items: category}"]).unknown_key("data.fields")
    assert line.endswith("write '~data.fields' '+data.fields={items: category}'")
