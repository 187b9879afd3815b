"""Names of settings: the choices and keys that tell configs apart, as a user would type them."""

import re

import pytest

from seqclf.config.composition import compose_config
from seqclf.config.documentation import Command
from seqclf.config.setting_names import setting_names, settings_of


def config(*overrides):
    return compose_config("train", ["data=toy", "logger=none", *overrides]).plain()


@pytest.mark.parametrize("choice", [name for name in Command("train").choices("model") if not name.startswith("own")])
def test_a_choice_of_a_model_is_found_by_its_keys(choice):
    settings = settings_of(config(f"model={choice}"))
    assert (settings["model"], settings["data"], settings["decision"]) == (choice, "toy", "argmax")


def test_settings_differ_neither_by_seed_nor_by_what_leaves_the_model_as_it_is():
    assert settings_of(config()) == settings_of(config("seed=3", "export=false", "logger=csv", "baseline=false"))


@pytest.mark.parametrize(
    "names",
    [
        ["model=lstm", "model=gru"],
        ["model=auto", "model=lstm model.layers=1", "model=lstm model.layers=2"],
        ["optimizer.lr=0.01", "optimizer.lr=0.003"],
        ["patience=3 model=transformer", "patience=null model=tree_lstm"],
        ["optimizer.betas=[0.9, 0.99]", "optimizer.betas=[0.8, 0.9]"],
    ],
)
def test_a_name_is_what_a_user_types(names):
    typed = [re.split(r" (?=[a-z])", name) for name in names]
    found = setting_names([settings_of(config(*overrides)) for overrides in typed])
    assert [sorted(re.split(r" (?=[a-z])", name)) for name in found] == [sorted(overrides) for overrides in typed]


def test_a_class_of_another_package_is_named_by_its_path():
    own = config("model=own_network", "model._target_=mine.Network")
    assert setting_names([settings_of(own), settings_of(config("model=lstm"))]) == ["model=mine.Network", "model=lstm"]
