"""Config values are of the type and in the range that their model says, and errors name the key."""

import copy
import inspect
import re
from typing import Annotated, Literal, get_args

import lightning.pytorch as pl
import pytest
from lightning.fabric.connector import _PRECISION_INPUT
from pydantic import Discriminator
from typing_extensions import TypedDict

from seqclf import load_config
from seqclf.config.command_keys import CONF
from seqclf.config.hydra_config import compose_config
from seqclf.errors import InputError
from seqclf.evaluation.decision import RULES
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.models.ensemble import RUN_SETTINGS
from seqclf.models.rnn.recurrent import CELLS, CellName
from seqclf.models.tree_lstm import CELLS as TREE_CELLS
from seqclf.models.tree_lstm import Composition
from seqclf.settings.base import Count, NonNegative, Options, Share, Text, parse_options
from seqclf.settings.decision_settings import TARGETS
from seqclf.settings.train_settings import (
    MADE_BY_PIPELINE,
    LoggerOptions,
    Monitor,
    Precision,
    TrainConfig,
    TrainerOptions,
)
from seqclf.settings.typed_text import label_text
from seqclf.training.check_targets import resolve_loss, resolve_model
from seqclf.training.loggers.run_logger import LOGGERS


class Arguments(TypedDict, total=False):
    size: Count
    price: NonNegative


class First(Options):
    name: Literal["first"]
    mode: Literal["a", "b"]


class Second(Options):
    name: Literal["second"]


class Sample(Options):
    seed: int
    patience: Count | None
    rate: NonNegative
    share: Share
    export: bool
    explain: bool | Literal["tokens"]
    name: Text
    limit: int | float
    names: list[str]
    weights: dict[str, float]
    arguments: Arguments
    logger: Annotated[First | Second, Discriminator("name")]


SAMPLE = {
    "seed": 0,
    "patience": 10,
    "rate": 0.5,
    "share": 0.5,
    "export": True,
    "explain": False,
    "name": "a",
    "limit": 1.0,
    "names": [],
    "weights": {},
    "arguments": {"size": 3},
    "logger": {"name": "first", "mode": "a"},
}


def with_value(values, key, value):
    changed = copy.deepcopy(values)
    *groups, name = key.split(".")
    group = changed
    for part in groups:
        group = group[part]
    group[name] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share", 1),
        ("name", 3),
        ("patience", None),
        ("weights", {"a": 1}),
        ("explain", "tokens"),
        ("explain", True),
        ("logger", {"name": "second"}),
    ],
)
def test_values_of_the_right_type_pass(key, value):
    parse_options(Sample, with_value(SAMPLE, key, value))


def test_a_whole_number_stays_one_where_both_are_allowed():
    assert type(parse_options(Sample, with_value(SAMPLE, "limit", 1)).limit) is int, "1 batch is not 1.0 of all batches"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", "abc", "seed=abc: must be a whole number"),
        ("seed", "3", "seed=3: must be a whole number"),
        ("seed", True, "seed=true: must be a whole number"),
        ("patience", 0, "patience=0: must be at least 1, or null"),
        ("export", 1, "export=1: must be true or false"),
        ("explain", "token", "explain=token: must be true, false or tokens; did you mean 'tokens'?"),
        ("rate", "0.5", "rate=0.5: must be a number"),
        ("rate", float("nan"), "rate=nan: must be a finite number"),
        ("share", 2, "share=2: must be at most 1"),
        ("name", ["a"], "name=['a']: must be a text"),
        ("names", "a", "names=a: must be a list"),
        ("weights", None, "weights=null: must be a mapping"),
        ("weights.a", "x", "weights.a=x: must be a number"),
        ("arguments.size", 0, "arguments.size=0: must be at least 1"),
        ("logger.mode", "c", "logger.mode=c: must be a or b"),
        ("logger.name", "frist", "logger.name=frist: must be first or second; did you mean 'first'?"),
        ("logger.moed", "a", "logger.moed: no such key; did you mean 'logger.mode'?"),
        ("sed", 1, "sed: no such key; did you mean 'seed'?"),
    ],
)
def test_values_of_another_type_are_refused_by_key(key, value, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        parse_options(Sample, with_value(SAMPLE, key, value))
    # Keys that the line advises are in the same group.
    grouped = f"group.{message}".replace("did you mean 'logger.m", "did you mean 'group.logger.m")
    grouped = grouped.replace("mean 'seed", "mean 'group.seed").replace("; write ", "; write group.")
    with pytest.raises(InputError, match=f"^{re.escape(grouped)}$"):
        parse_options(Sample, with_value(SAMPLE, key, value), "group")


@pytest.mark.parametrize("key", ["seed", "logger.name", "logger.mode"])
def test_a_removed_key_is_named(key):
    values = copy.deepcopy(SAMPLE)
    *groups, name = key.split(".")
    del (values[groups[0]] if groups else values)[name]
    with pytest.raises(InputError, match=f"^{key}: missing; do not remove it with ~"):
        parse_options(Sample, values)


def test_labels_read_as_the_data_has_them():
    assert [label_text(value) for value in (True, False, 3, "True", "é")] == ["true", "false", "3", "True", "é"]


@pytest.fixture(scope="module")
def train_values():
    return compose_config("train").plain()


def test_arguments_of_other_packages_may_be_anything(train_values):
    model = {"_target_": "mine.Transformer", "members": 1, "layers": "many", "heads": [4, 8]}
    loss = {"_target_": "mine.Loss", "gamma": "high"}
    config = parse_options(TrainConfig, {**train_values, "model": model, "loss": loss})
    assert (config.model, config.loss) == (model, loss)


def test_a_config_without_members_has_one(train_values):
    for target in ("mine.Transformer", train_values["model"]["_target_"]):
        model = {name: value for name, value in train_values["model"].items() if name != "members"}
        assert (
            parse_options(TrainConfig, {**train_values, "model": {**model, "_target_": target}}).model["members"] == 1
        )


def test_arguments_of_an_encoder_of_another_package_may_be_anything(train_values):
    model = {
        **train_values["model"],
        "encoder": {"_target_": "mine.Conv", "layout": "any"},
        "layers": "many",
        "cell": 3,
    }
    assert parse_options(TrainConfig, {**train_values, "model": model}).model == model


@pytest.mark.parametrize("name", MADE_BY_PIPELINE)
def test_objects_of_the_trainer_that_training_makes_cannot_be_set(train_values, name):
    values = with_value(train_values, f"trainer.{name}", None)
    with pytest.raises(InputError, match=rf"^trainer\.{name}: is made by the training itself; (choose|set|add) "):
        parse_options(TrainConfig, values)


@pytest.mark.parametrize("rule", RULES)
def test_targets_by_label_are_checked_by_label(train_values, rule):
    config = parse_options(TrainConfig, with_value(train_values, f"decision.{rule}", {True: 0.5, 3: 0.1}))
    assert getattr(config.decision, rule) == {"true": 0.5, "3": 0.1}
    with pytest.raises(InputError, match=rf"^decision\.{rule}\.crash=-1: must be "):
        parse_options(TrainConfig, with_value(train_values, f"decision.{rule}", {"crash": -1}))


def test_choices_are_those_of_the_code_that_reads_them():
    assert set(get_args(Monitor)) == set(EPOCH_METRICS) and TARGETS == RULES
    assert get_args(CellName) == tuple(CELLS)
    assert get_args(Composition) == tuple(TREE_CELLS)
    kinds = get_args(get_args(LoggerOptions)[0])
    names = {name for kind in kinds for name in get_args(kind.model_fields["name"].annotation)}
    assert names - {"csv", "none"} == {*LOGGERS}


# Values of conf/ that a choice sets otherwise than its classes do.
OF_CHOICE = {
    "model/gru": {"cell": "gru"},
    "model/rnn": {"cell": "rnn"},
    "model/adaptive": {"bidirectional": False},
    "model/transformer": {"pooling": "mean"},
    "model/t_lstm": {"bidirectional": False},
    "model/gru_d": {"bidirectional": False},
    "loss/balanced": {"class_weights": "balanced"},
    "loss/smoothed": {"label_smoothing": 0.1},
}


# Choices of model that read a field, which the user must name.
NAMED_FIELDS = {"model/t_lstm": ["model.encoder.cell.gap=at"], "model/gru_d": ["model.encoder.cell.field=vitals"]}


def choices_of(group):
    return [f"{group}/{file.stem}" for file in sorted((CONF / group).glob("*.yaml")) if not file.stem.startswith("own")]


@pytest.mark.parametrize("choice", [*choices_of("model"), *choices_of("loss")])
def test_conf_lists_the_arguments_of_a_class_with_their_defaults(choice):
    group, _, name = choice.partition("/")
    settings = load_config([f"{group}={name}", *NAMED_FIELDS.get(choice, [])])[group]
    written = {key: settings[key] for key in ("_target_", "encoder", *RUN_SETTINGS) if key in settings}
    resolve = {"model": resolve_model, "loss": resolve_loss}[group]
    assert resolve({**written, **OF_CHOICE.get(choice, {})}) == settings


def test_the_precisions_are_lightnings():
    known = {name for choices in get_args(_PRECISION_INPUT) for name in get_args(choices)}
    assert set(get_args(Precision)) == known


def test_the_trainer_arguments_are_lightnings():
    of_lightning = set(inspect.signature(pl.Trainer).parameters)
    assert set(TrainerOptions.model_fields) == of_lightning - set(MADE_BY_PIPELINE)
    assert set(MADE_BY_PIPELINE) < of_lightning
    assert set(compose_config("train").plain()["trainer"]) <= set(TrainerOptions.model_fields)
