"""Names of settings: the keys and classes that tell configs apart."""

import pytest

from seqclf.config.command_keys import flat_keys
from seqclf.config.hydra_config import compose_config
from seqclf.config.setting_names import setting_names


def names(*settings):
    configs = (compose_config("train", ["data=toy", "logger=none", *overrides.split()]) for overrides in settings)
    return [set(name.split()) for name in setting_names([flat_keys(config.plain()) for config in configs])]


@pytest.mark.parametrize(
    "settings",
    [
        ["model.layers=1", "model.layers=2"],
        ["optimizer.lr=0.01", "optimizer.lr=0.003"],
        ["patience=3 model.members=1", "patience=null model.members=2"],
    ],
)
def test_a_key_that_differs_is_named_as_a_user_types_it(settings):
    assert names(*settings) == [set(text.split()) for text in settings]


def test_networks_are_named_by_their_classes_or_the_key_that_differs():
    assert names("model=lstm", "model=gru") == [{"model.cell=lstm"}, {"model.cell=gru"}]
    assert names("model=lstm", "model=transformer") == [{"model.encoder=Recurrent"}, {"model.encoder=Transformer"}]
    assert names("model=auto", "model=lstm model.layers=1", "model=lstm model.layers=2") == [
        {"model=HeadsClassifier"},
        {"model=EncoderClassifier", "model.encoder=Recurrent", "model.layers=1"},
        {"model=EncoderClassifier", "model.encoder=Recurrent", "model.layers=2"},
    ]


def test_a_long_value_is_shortened():
    (first, second) = setting_names([{"data.query": "SELECT " + "a, " * 40}, {"data.query": None}])
    assert first.startswith("data.query=") and first.endswith("…") and len(first) < 50 and second == "data.query=null"
