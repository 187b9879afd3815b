"""Keys and defaults that are read from conf/ are those that Hydra composes, and help prints the files."""

import re

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.config.documentation import CONF, GLOBAL_GROUP, Command, command_names
from seqclf.config.help_text import help_text
from seqclf.config.options import parse_options
from seqclf.errors import InputError
from seqclf.training.options import TrainConfig

CHOICES = [
    (name, group, choice)
    for name in ("train", "evaluate")
    for group in Command(name).groups
    for choice in Command(name).choices(group)
    if group != GLOBAL_GROUP and (name == "train" or group == "data")
]


def composed(name, *overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))


def at(config, path):
    for part in path.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize(("name", "group", "choice"), CHOICES)
def test_the_defaults_of_a_choice_are_those_that_hydra_composes_and_are_valid(name, group, choice):
    config = composed(name, f"{group}='{choice}'")  # in quotes: Hydra reads nan as a number
    plain = OmegaConf.to_container(config)
    defaults = Command(name).choice_keys(group, choice)
    assert {path: at(plain, path) for path in defaults} == defaults
    assert {path.split(".")[1] for path in defaults} == {*plain[group]}
    if name == "train":
        values = OmegaConf.to_container(config, resolve=True)
        parse_options(TrainConfig, {**values, "data": {**values["data"], "label": "label"}})


@pytest.mark.parametrize("name", [name for name in command_names() if Command(name).uses_hydra])
def test_the_keys_of_a_command_are_those_that_hydra_composes(name):
    plain = OmegaConf.to_container(composed(name))
    defaults = {path: value for path, value in Command(name).defaults().items() if not path.startswith("hydra.")}
    assert {path: at(plain, path) for path in defaults} == defaults
    assert {path.partition(".")[0] for path in defaults} | {GLOBAL_GROUP} >= plain.keys()


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_every_key_has_a_comment(path):
    """An experiment and a choice that extends another one set keys that are explained elsewhere."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    content = yaml.safe_load(text)
    if path.parent.name == GLOBAL_GROUP or any(isinstance(part, str) for part in content.get("defaults", [])[:1]):
        return
    keys = [line for line in text.splitlines() if re.match(r"(  )?\w+: \S", line)]
    bare = [line for line in keys if "#" not in line and line.partition(":")[0] in content]
    assert not bare, bare


def test_files_of_a_config_folder_are_listed_and_explained(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine.yaml").write_text("# My model.\ndefaults: [lstm]\n\nwidth: 5  # of all\n")
    command = Command("train", (CONF, tmp_path))
    assert "mine" in command.choices("model")
    text = help_text(command, ["model=mine"])
    assert all(part in text for part in ("# My model.", "width: 5  # of all", "# model/lstm.yaml", "layers: 1  "))


@pytest.mark.parametrize("name", command_names())
def test_help_shows_every_key_and_group(name):
    command = Command(name)
    text = help_text(command)
    assert command.summary in text and all(f"  {group} " in text for group in command.groups)
    own = yaml.safe_load(command.path.read_text(encoding="utf-8")).keys() - {"defaults", "hydra", "help"}
    assert all(f"\n{key}:" in text for key in own)


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
