"""Keys, defaults and comments that are read from conf/ are those that Hydra composes, and none lacks a comment."""

import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.config.documentation import CONF, GLOBAL_GROUP, Command, command_names, read_file
from seqclf.config.help_text import help_text

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from configuration_page import PAGE, page

CHOICES = [
    (name, group, choice)
    for name in ("train", "evaluate", "bench")
    for group in Command(name).groups
    for choice in Command(name).choices(group)
    if group != GLOBAL_GROUP and (name == "train" or group == "data")
]


def at(config, path):
    for part in path.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize(("name", "group", "choice"), CHOICES)
def test_the_defaults_of_a_choice_are_those_that_hydra_composes(name, group, choice):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(name, [f"{group}='{choice}'"])  # in quotes: Hydra reads nan as a number
    plain = OmegaConf.to_container(composed, resolve=False)
    keys = {key.path: key for key in Command(name).choice(group, choice).keys}
    for path, key in keys.items():
        assert key.value is None or at(plain, path) == yaml.safe_load(key.value), path
    leaves = {path for path, key in keys.items() if key.value is not None}
    assert all(any(f"{group}.{top}".startswith(path) or path.startswith(f"{group}.{top}") for path in leaves)
               for top in plain[group])  # fmt: skip


@pytest.mark.parametrize("name", command_names())
def test_the_keys_of_a_command_are_those_that_hydra_composes(name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plain = OmegaConf.to_container(compose(name), resolve=False)
    command = Command(name)
    own = {key.path.partition(".")[0] for key in command.own_keys} - {"hydra"}
    assert own == plain.keys() - command.groups.keys()
    for key in command.own_keys:
        if key.value is not None and not key.path.startswith("hydra"):
            assert at(plain, key.path) == yaml.safe_load(key.value), key.path


@pytest.mark.parametrize("name", command_names())
def test_every_key_has_a_comment(name):
    command = Command(name)
    keys = [*command.own_keys]
    for group in command.groups:
        for choice in command.choices(group):
            shown = command.choice(group, choice)
            assert shown.description, f"{group}={choice}"
            keys += [key for key in shown.keys if group != GLOBAL_GROUP or key.value is not None]
    assert not [key.path for key in keys if not key.comment]


def test_comments_continue_over_lines_and_notes_end_at_an_empty_line(tmp_path):
    (tmp_path / "group.yaml").write_text(
        "# The file.\n"
        "first: 1                    # begins\n"
        "                            # and goes on\n"
        "\n"
        "# A note.\n"
        "#   item\n"
        "second: [1,\n"
        "  2]                        # several lines\n"
        "block:                      # a block\n"
        "  third: '#'                # a mark\n"
        "\n"
        "fourth: {a: 1}\n"
    )
    file = read_file(tmp_path / "group.yaml")
    assert file.description == ("The file.",)
    note = ("A note.", "  item")
    assert [(key.path, key.value, key.comment, key.note) for key in file.keys] == [
        ("first", "1", "begins and goes on", ()),
        ("second", "[1, 2]", "several lines", note),
        ("block", None, "a block", note),
        ("block.third", "'#'", "a mark", ()),
        ("fourth", "{a: 1}", "", ()),
    ]


def test_files_of_a_config_folder_are_listed_and_explained(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine.yaml").write_text("# My model.\ndefaults: [lstm]\n\nwidth: 5  # of all\n")
    command = Command("train", (CONF, tmp_path))
    assert "mine" in command.choices("model")
    text = help_text(command, ["model=mine"], {}, 80)
    assert "My model." in text and "model.width=5" in text and "model.layers=1" in text


@pytest.mark.parametrize("name", command_names())
def test_help_is_readable_in_80_columns(name):
    command = Command(name)
    texts = [help_text(command, [], {}, 80)]
    texts += [help_text(command, [group], {}, 80) for group in command.groups]
    texts += [help_text(command, [f"{group}={choice}"], {}, 80) for group in command.groups
              for choice in command.choices(group)]  # fmt: skip
    for line in "\n".join(texts).splitlines():
        # A path or a command is not broken.
        assert len(line) <= 80 or len(max(line.split(), key=len)) > 40 or "search.space" in line, line
    for key in command.own_keys:
        if key.value is not None:
            assert f"  {key.path}=" in texts[0] and key.comment.split()[0] in texts[0]


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("batching.max_tokens", ["batching.max_tokens=16384", "padding included"]),
        ("max_tokens", ["batching.max_tokens=16384"]),
        ("data.split", ["data.split.by=group", "data.split.seed=0"]),
        ("model", ["model=gru", "model.hidden_size=auto"]),
        ("model=gru", ["model.cell=gru", "As model=lstm"]),
        ("loss.gamma", ["loss.gamma=2.0"]),
        ("patience", ["patience=null", "early stopping"]),
    ],
)
def test_a_topic_of_help_is_a_group_a_choice_a_block_or_a_key(topic, shown):
    text = help_text(Command("train"), [topic], {}, 80)
    assert all(part in text for part in shown)


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("modle", "did you mean 'model'?"),
        ("xyzzy", "--help lists groups and keys"),
    ],
)
def test_an_unknown_topic_of_help_suggests_one(topic, hint):
    with pytest.raises(ValueError, match=r"no such group, choice or key") as caught:
        help_text(Command("train"), [topic], {}, 80)
    assert hint in str(caught.value)


def test_the_page_of_the_configuration_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/configuration_page.py"
