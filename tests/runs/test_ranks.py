"""Ranks that torchrun starts: their trainer, run folder and end."""

import pytest

from seqclf.config.composition import compose_config
from seqclf.config.hydra_command import check_config
from seqclf.errors import InputError
from seqclf.runs.ranks import join_ranks


@pytest.fixture
def four_ranks(monkeypatch):
    """Variables of rank 3 of torchrun on two machines of two devices."""
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))


def joined(*overrides):
    composed = compose_config("train", overrides)
    options = "seqclf.training.options.TrainConfig"
    config = check_config("train", options, composed.plain(), composed.overrides, composed.choices)
    trainer = join_ranks(config, {text.split("=")[0] for text in overrides}).trainer
    return [trainer[name] for name in ("strategy", "devices", "num_nodes")]


def test_a_process_alone_keeps_its_trainer(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert joined() == ["auto", "auto", 1]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], ["ddp", 2, 2]),
        (["trainer.devices=2", "trainer.num_nodes=2", "trainer.strategy=fsdp"], ["fsdp", 2, 2]),
        (["trainer.devices=-1", "trainer.strategy=ddp"], ["ddp", 2, 2]),
        (["trainer.devices=[0,3]"], ["ddp", [0, 3], 2]),
        (["trainer.devices='0,3'"], ["ddp", "0,3", 2]),
    ],
)
def test_torchrun_decides_what_the_user_leaves_open(four_ranks, overrides, expected):
    assert joined(*overrides) == expected


@pytest.mark.parametrize(
    "override", ["trainer.devices=1", "trainer.devices=[0,1,2]", "trainer.num_nodes=1", "debug=shapes"]
)
def test_a_setting_that_contradicts_torchrun_is_refused(four_ranks, override):
    with pytest.raises(InputError) as raised:
        joined(override)
    assert raised.value.where.split("=")[0] == override.split("=")[0]
