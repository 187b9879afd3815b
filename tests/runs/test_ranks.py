"""Ranks that torchrun starts: their trainer, run folder and end."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from torch.distributed import DistNetworkError, TCPStore

from seqclf.config.composition import compose_config
from seqclf.config.hydra_command import check_config
from seqclf.config.override_checks import TypedArguments
from seqclf.errors import InputError
from seqclf.runs import lost_ranks
from seqclf.runs.lost_ranks import SignsOfLife, explained_loss
from seqclf.runs.ranks import join_ranks


@pytest.fixture
def four_ranks(monkeypatch):
    """Variables of rank 3 of torchrun on two machines of two devices."""
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))


def joined(*overrides):
    composed = compose_config("train", overrides)
    typed = TypedArguments("train", overrides, "seqclf.training.options.TrainConfig")
    config = check_config(typed, composed.plain(), composed.choices)
    trainer = join_ranks(config).trainer
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
    "override", ["trainer.devices=1", "trainer.devices=[0,1,2]", "trainer.num_nodes=3", "debug=shapes"]
)
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
    with pytest.raises(InputError) as raised, explained_loss(SignsOfLife(), 3, 8.0, lambda: "resume"):
        raise error
    assert (raised.value.where, raised.value.remedy) == ("rank 3", "resume") and problem in raised.value.problem


def test_an_error_of_the_program_stays_as_it_is():
    with pytest.raises(RuntimeError, match=r"^size mismatch$"), explained_loss(SignsOfLife(), 3, 8.0, lambda: "resume"):
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


@pytest.fixture
def signs(monkeypatch):
    """`signs(rank)` of three ranks that meet in one store."""
    monkeypatch.setattr(lost_ranks, "BEAT_S", 0.05)
    monkeypatch.setattr(lost_ranks, "SILENCE_S", 0.5)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setattr(lost_ranks, "_get_default_store", lambda: store)
    made = []

    def start(rank, processes=()):
        strategy = SimpleNamespace(launcher=SimpleNamespace(procs=list(processes)))
        made.append(SignsOfLife())
        made[-1].setup(SimpleNamespace(world_size=3, global_rank=rank, strategy=strategy), None, "fit")
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_a_rank_without_signs_of_life_is_named(signs):
    first, second, third = (signs(rank) for rank in range(3))
    assert first.lost() == []
    third.stop()
    assert first.lost() == second.lost() == [2]
    line = r"^rank 0: rank 2 has ended; resume$"
    with pytest.raises(InputError, match=line), explained_loss(first, 0, 8.0, lambda: "resume"):
        raise RuntimeError(f"{GLOO}Connection closed by peer [127.0.0.1]:2481")


def test_an_ended_process_is_named_at_once(signs):
    running, killed = SimpleNamespace(poll=lambda: None), SimpleNamespace(poll=lambda: -9)
    assert signs(0, [running, killed]).lost() == [2]
