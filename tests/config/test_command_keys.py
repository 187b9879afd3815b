"""Keys of the tree of settings and of conf/ are those that Hydra composes, and help prints them."""

import re

import pytest
import yaml
from omegaconf import OmegaConf

from seqclf.api.fit import load_config
from seqclf.config.build import locate
from seqclf.config.command_keys import (
    CONF,
    GLOBAL_GROUP,
    NODES,
    SETTINGS,
    Command,
    block_of,
    descriptions,
    flat_keys,
    nested_defaults,
)
from seqclf.config.help_text import help_text
from seqclf.config.hydra_config import compose_config
from seqclf.errors import InputError
from seqclf.settings.base import parse_options
from seqclf.settings.train_settings import TrainConfig

TRAIN = Command("train")

CHOICES = [(group, choice) for group in TRAIN.groups for choice in TRAIN.choices(group) if group != GLOBAL_GROUP]
NAMED_FIELDS = {"t_lstm": ["model.encoder.cell.gap=value"], "gru_d": ["model.encoder.cell.field=vitals"]}


def composed(name, *overrides):
    config = compose_config(name, overrides).config
    return OmegaConf.to_container(OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]))


def at(config, path):
    for part in path.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_the_keys_of_a_choice_are_those_that_hydra_composes_and_are_valid(group, choice):
    plain = composed("train", f"{group}={choice}", *NAMED_FIELDS.get(choice, []))
    defaults = TRAIN.defaults({group: choice})
    shown = {path: value for path, value in defaults.items() if path.startswith(f"{group}.")}
    shown |= {path: at(plain, path) for path in ("model.encoder.cell.gap", "model.encoder.cell.field") if path in shown}
    assert {path: at(plain, path) for path in shown} == shown
    assert {path.split(".")[1] for path in defaults if path.startswith(f"{group}.")} == {*plain[group]}
    plain["logger"] = {"name": "none"} if group != "logger" else load_config([f"logger={choice}"])["logger"]
    if not choice.startswith("own"):
        parse_options(TrainConfig, {**plain, "data": {**plain["data"], "label": "label"}})


@pytest.mark.parametrize("name", [name for name in SETTINGS if Command(name).uses_hydra])
def test_the_keys_of_a_command_are_those_that_hydra_composes(name):
    plain = composed(name)
    defaults = {path: value for path, value in Command(name).defaults().items() if not path.startswith("hydra.")}
    assert {path: at(plain, path) for path in defaults} == defaults
    assert {path.partition(".")[0] for path in defaults} | {GLOBAL_GROUP} >= plain.keys()


def test_no_key_of_a_plain_block_stands_in_two_places():
    """conf/ holds what a choice changes; the arguments of classes are those of constructors and of conf/."""
    tree = flat_keys(nested_defaults(TrainConfig))
    for group, choice in CHOICES:
        of_file = yaml.safe_load(TRAIN.file(group, choice).read_text(encoding="utf-8")) or {}
        written = flat_keys({group: {name: value for name, value in of_file.items() if name != "defaults"}})
        same = [path for path, value in written.items() if path in tree and tree[path] == value]
        assert not same, f"{group}/{choice}.yaml"
    top = {name for file in CONF.glob("*.yaml") for name in yaml.safe_load(file.read_text(encoding="utf-8"))}
    assert top == {"defaults", "hydra"}


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_every_argument_of_a_class_in_conf_has_a_comment(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    if path.parent.name in ("model", "loss", "optimizer") and "defaults:" not in text:
        bare = [line for line in text.splitlines() if re.match(r"\w+: \S", line) and "#" not in line]
        assert not bare, bare


def nodes(settings):
    yield settings
    for field in settings.model_fields.values():
        if block := block_of(field):
            yield from nodes(block.model)


@pytest.mark.parametrize("path", NODES.values())
def test_every_key_of_the_tree_has_a_default_and_a_description(path):
    """Keys without them are arguments of Lightning's Trainer that are added with a plus, and those of groups."""
    for node in nodes(locate(path)):
        missing = [name for name, text in descriptions(node).items() if not text]
        assert not missing or node.__name__ == "LightningOptions"
        for name in descriptions(node):
            field = node.model_fields[name]
            assert not field.is_required() or block_of(field) or name in ("bundle", "runs", *TRAIN.groups), name


def test_files_of_a_config_folder_are_listed_and_explained(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine.yaml").write_text("# My model.\ndefaults: [lstm]\n\nwidth: 5  # of all\n")
    command = Command("train", (CONF, tmp_path))
    assert "mine" in command.choices("model")
    text = help_text(command, ["model=mine"])
    assert all(part in text for part in ("# My model.", "width: 5  # of all", "# model/lstm.yaml", "layers: 1  "))


@pytest.mark.parametrize("name", SETTINGS)
def test_help_shows_every_key_and_group(name):
    command = Command(name)
    text = help_text(command)
    assert command.summary in text and all(f"  {group} " in text for group in command.groups)
    own = {path.partition(".")[0] for path in command.defaults()} - {*command.groups}
    assert all(f"\n{key}:" in text or f"\n{key}." in text for key in own - {"hydra"})
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("batching.max_tokens", ["max_tokens: 16384", "padding included"]),
        ("data.split", ["  by: ", "  seed: 0"]),
        ("model", ["model: auto, adaptive", "hidden_size: auto"]),
        ("model=gru", ["cell: gru", "hidden_size: 96"]),
        ("loss=focal", ["gamma: 2.0"]),
        ("patience", ["patience: null", "early stopping"]),
    ],
)
def test_a_topic_of_help_is_a_group_a_choice_or_a_key(topic, shown):
    text = help_text(Command("train"), [topic])
    assert all(part in text for part in shown)


@pytest.mark.parametrize(("topic", "hint"), [("modle", "did you mean 'model'?"), ("model=gruu", "did you mean 'gru'?")])
def test_an_unknown_topic_of_help_suggests_one(topic, hint):
    with pytest.raises(InputError) as caught:
        help_text(Command("train"), [topic])
    assert caught.value.remedy == hint
