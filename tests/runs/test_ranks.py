"""Ranks that torchrun starts: their trainer, run folder and end."""

import signal
import subprocess
import sys

import pytest
from torch.distributed import DistNetworkError

from seqclf.config.hydra_config import compose_config
from seqclf.errors import InputError
from seqclf.runs.ranks import explained_loss, join_ranks
from seqclf.settings.base import parse_options
from seqclf.settings.train_settings import TrainConfig


@pytest.fixture
def four_ranks(monkeypatch):
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))


def joined(*overrides):
    trainer = join_ranks(parse_options(TrainConfig, compose_config("train", overrides).plain())).trainer
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
        (["trainer.devices='0,3'"], ["ddp", "0,3", 2]),
    ],
)
def test_torchrun_decides_what_the_user_leaves_open(four_ranks, overrides, expected):
    assert joined(*overrides) == expected


@pytest.mark.parametrize("override", ["trainer.devices=1", "trainer.devices=[0,1,2]", "trainer.num_nodes=3"])
def test_a_setting_that_contradicts_torchrun_is_refused(four_ranks, override):
    with pytest.raises(InputError) as raised:
        joined(override)
    assert raised.value.where.split("=")[0] == override.split("=")[0]


GLOO = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] "


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RuntimeError(f"{GLOO}Timed out waiting 8000ms for recv operation to complete"), "8 s (runtime.rank_timeout)"),
        (RuntimeError(f"{GLOO}Connection closed by peer [127.0.0.1]:2481"), "has ended"),
        (DistNetworkError("failed to recv, got 0 bytes"), "has ended"),
    ],
)
def test_a_lost_rank_is_one_line(error, problem):
    with pytest.raises(InputError) as raised, explained_loss(3, 8.0, lambda: "resume"):
        raise error
    assert (raised.value.where, raised.value.remedy) == ("rank 3", "resume") and problem in raised.value.problem


def test_an_error_of_the_program_stays_as_it_is():
    with pytest.raises(RuntimeError, match=r"^size mismatch$"), explained_loss(3, 8.0, lambda: "resume"):
        raise RuntimeError("size mismatch")


ORPHAN = """
import os, sys, time
os.environ |= {"LOCAL_RANK": "1"}
import seqclf.runs.ranks as ranks
if os.fork():
    time.sleep(0.3)
    os._exit(0)  # the launcher ends
ranks.WATCH_S = 0.05
with ranks.ending_with_parent():
    import signal
    signal.signal(signal.SIGTERM, lambda number, _: (print(number, flush=True), os._exit(0)))
    time.sleep(20)
"""


def test_a_rank_ends_with_the_process_that_launched_it():
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=30)
    assert done.stdout == f"{signal.SIGTERM:d}\n", done.stderr
