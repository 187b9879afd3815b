"""Arguments that Hydra cannot read, or would read otherwise, are refused with what to type instead."""

import pytest

from seqclf.config.override_checks import TypedArguments
from seqclf.errors import InputError


@pytest.mark.parametrize("key", ["model.encoder._target_", "+model.encoder._target_", "model._target_"])
def test_arguments_of_a_class_of_another_package_are_to_be_added(key):
    """`kernel` is a key of another model, which must not take the place of the class."""
    typed = TypedArguments("train", [f"{key}=acme.Gated", "model.kernel=7"])
    error = typed.unknown_key("model.kernel")
    assert str(error) == "model.kernel: no such key; to add a new key, write +model.kernel=7"
    own = TypedArguments("train", [f"{key}=seqclf.models.recurrent.Recurrent", "model.kernel=7"])
    assert "model=conv_lstm" in own.unknown_key("model.kernel").remedy


def test_a_class_for_a_block_that_only_another_model_has_names_that_model():
    error = TypedArguments("train", ["model.encoder._target_=acme.Gated"]).unknown_key("model.encoder._target_")
    assert error.remedy == "write model=lstm model.encoder._target_=acme.Gated"
    assert TypedArguments("train", []).unknown_key("model.pooling").remedy == "write model=lstm model.pooling=VALUE"


def test_a_group_whose_keys_the_command_changes_takes_a_choice():
    TypedArguments("evaluate", ["bundle=b", "data=files", "data.test=x.csv"]).check()


def test_options_may_stand_between_overrides():
    typed = TypedArguments("train", ["seed=1", "--config-dir", "folder", "debug=nan", "-m", "model=gru,lstm"])
    typed.check()
    assert typed.for_hydra() == ["--config-dir", "folder", "-m", "seed=1", "debug='nan'", "model=gru,lstm"]


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        ("data.fields={a: (b}", "'KEY={a: b}'"),
        ("data.fields={shop:", "'KEY={a: b}'"),
        ("decision.min_recall={'with, comma': 0.8}", "'KEY={a: b}'"),
        ("model=3", "--help model"),
        ("model=null", "--help model"),
        ("optimizer.lr=0.1,0.01", "give one value"),
        ("logger=wandb,csv", "give one value"),
        ("data.positive=a,b", "write \"data.positive='a,b'\""),
    ],
)
def test_an_argument_that_means_something_else_is_refused_with_a_remedy(argument, remedy):
    with pytest.raises(InputError) as refused:
        TypedArguments("train", [argument]).check()
    assert refused.value.where == argument and remedy in refused.value.remedy
