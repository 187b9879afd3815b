"""Arguments that Hydra cannot read, or would read otherwise, are refused with what to type instead."""

import pytest

from seqclf.api.fit import load_config, training_setup
from seqclf.config.override_checks import HydraArguments
from seqclf.errors import InputError


@pytest.mark.parametrize("key", ["model.encoder._target_", "+model.encoder._target_", "model._target_"])
def test_arguments_of_a_class_of_another_package_are_to_be_added(key):
    """`expansion` is a key of another model, which must not take the place of the class."""
    typed = HydraArguments("train", [f"{key}=acme.Gated", "model.expansion=7"])
    error = typed.unknown_key("model.expansion")
    assert str(error) == "model.expansion: no such key; to add a new key, write +model.expansion=7"
    own = HydraArguments("train", [f"{key}=seqclf.models.rnn.recurrent.Recurrent", "model.expansion=7"])
    assert "model=transformer" in own.unknown_key("model.expansion").remedy


def test_a_class_for_a_block_that_only_another_model_has_names_that_model():
    error = HydraArguments("train", ["model.encoder._target_=acme.Gated"]).unknown_key("model.encoder._target_")
    assert error.remedy == "write model=lstm model.encoder._target_=acme.Gated"
    assert HydraArguments("train", []).unknown_key("model.pooling").remedy == "write model=lstm model.pooling=VALUE"


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
        HydraArguments("train", [argument]).check()
    assert refused.value.where == argument and remedy in refused.value.remedy


NUMBERS = ["2024_01", "1e3", "1_1", "+7", "1.50", "3", "007", "1_1b", "'1_1'", "a 1e3", "x/1_1"]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_name_keeps_its_spelling(text):
    keys = ["label", "positive", "id", "group", "train", "split.column"]
    lists = ["group_by", "order_by"]
    overrides = [f"data.{key}={text}" for key in keys] + [f"data.{key}=[{text}, b, {text}]" for key in lists]
    overrides += [f"data.fields={{x: {{kind: number, columns: [{text}, b]}}, y: {{kind: time, column: {text}}}}}"]
    data = training_setup({}, None, ["data=files", "data.split.by=time", *overrides]).config.data
    name = text.strip("'")
    assert [data.label, data.positive, data.id, data.group, data.train, data.split.column] == [name] * 6
    assert (data.group_by, data.order_by) == ((name, "b", name),) * 2
    assert [*map(str, data.fields["x"]["columns"])] == [name, "b"] and str(data.fields["y"]["column"]) == name


def test_numbers_stay_numbers_where_numbers_are_expected():
    config = load_config(["optimizer.lr=1e-3", "trainer.max_epochs=1_0", "data.positive=null", "data.id=3"])
    assert (config["optimizer"]["lr"], config["trainer"]["max_epochs"]) == (0.001, 10)
    assert config["data"]["positive"] is None and config["data"]["id"] == 3
    assert HydraArguments("train", ["data.label=1_1,1e3"]).for_hydra() == ["data.label='1_1','1e3'"]


@pytest.mark.parametrize("override", ["data.fields={1_1: number}", "loss.class_weights={a: 2.0, 1_1: 2.0}"])
def test_a_key_of_a_mapping_that_is_read_as_a_number_is_refused(override):
    with pytest.raises(InputError, match=r"the key 1_1 would be read as 11; set .* in a YAML file, with '1_1' in q"):
        load_config([override])


def test_a_time_outside_of_a_mapping_stays_a_time():
    assert HydraArguments("train", ["+trainer.max_time=00:01:00:00"]).for_hydra() == ["+trainer.max_time=00:01:00:00"]


def test_numbers_inside_of_a_mapping_stay_numbers() -> None:
    text = "search.space={optimizer.lr: {low: 1e-3, high: 1e-1, log: true}}"
    typed = HydraArguments("search", [text])
    assert typed.for_hydra() == [text]
