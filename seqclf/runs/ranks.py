"""Support for training one model on several ranks (processes), which torchrun or Lightning starts."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import read_write

from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.system.run_folder import is_first_rank, remove_empty_folder

if TYPE_CHECKING:
    from torch.distributed import Store

    from seqclf.settings.train_settings import TrainConfig


class Ranks(NamedTuple):
    """Rank of this process, from 0, and numbers of processes on all machines and on each."""

    rank: int
    world_size: int
    local_world_size: int


def torchrun_ranks() -> Ranks | None:
    """Return the rank and the numbers of processes that torchrun has set, or `None` without another process."""
    # Processes that Lightning starts, with the arguments of rank 0, lack the variable LOCAL_WORLD_SIZE.
    if "LOCAL_WORLD_SIZE" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return None
    return Ranks(*(int(os.environ[name.upper()]) for name in Ranks._fields))


DEFAULTS = {"devices": "auto", "num_nodes": 1}  # as in `TrainerOptions`


def join_ranks(config: TrainConfig) -> TrainConfig:
    """Return the config with the trainer's devices, machines and strategy of torchrun, or raise InputError."""
    ranks = torchrun_ranks()
    if ranks is None:
        return config
    trainer = config.trainer
    joined: dict[str, Any] = {}
    numbers = {"devices": ranks.local_world_size, "num_nodes": ranks.world_size // ranks.local_world_size}
    for name, number in numbers.items():
        value: Any = trainer.get(name)
        given = _count(value)
        if given is None or value == DEFAULTS[name]:
            joined[name] = number
        elif given != number:
            problem = f"torchrun started {ranks.world_size} ranks, {ranks.local_world_size} on each machine"
            remedy = f"write trainer.{name}={number}, or leave it to torchrun"
            raise InputError(f"trainer.{name}={value}", problem, remedy)
    if trainer.get("strategy") == "auto":
        joined["strategy"] = "ddp"
    return config.model_copy(update={"trainer": {**trainer, **joined}})


def _count(devices: Any) -> int | None:
    """The number of devices that `trainer.devices` requests, or `None` for all.

    >>> [_count(devices) for devices in (2, "2", [0, 3], "0, 3", "auto", -1)]
    [2, 2, 2, 2, None, None]
    """
    if isinstance(devices, str):
        devices = devices.split(",") if "," in devices else -1 if devices == "auto" else int(devices)
    if isinstance(devices, list):
        return len(devices)
    return None if devices is None or devices < 0 else devices


# All ranks share one run folder. At first, each rank has its own run folder, named after the start time of the rank.

POLL_S = 0.05
FILE_OPTIONS = {"config-path": "cp", "config-name": "cn", "config-dir": "cd"}  # options of the Hydra command line
_TRAININGS = itertools.count()  # number of trainings so far in this process, because a program may train several times


def shared_run_folder(run: Path) -> Path:
    """Return the run folder of rank 0 to every rank of torchrun. The others remove their own empty run folders."""
    ranks = torchrun_ranks()
    if ranks is None:
        return run
    store, key = _store(), f"seqclf/run-folder-{next(_TRAININGS)}"
    if ranks.rank == 0:
        store.set(key, str(run))
        return run
    while not store.check([key]):  # `store.get` would wait without handling signals
        time.sleep(POLL_S)
    shared = Path(store.get(key).decode())
    if shared != run:
        remove_empty_folder(run)
    return shared


@contextmanager
def only_rank_zero_prints() -> Iterator[None]:
    """Disable console output inside the block on all ranks except rank 0. Errors are still printed."""
    before = console.quiet
    console.quiet = before or not is_first_rank()
    try:
        yield
    finally:
        console.quiet = before


@cache
def _store() -> Store:
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


# Ranks that Lightning starts with the command line of this process, and environment variables that it sets for them.

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


@contextmanager
def launching_ranks(run: Path) -> Iterator[None]:
    """Let Lightning start the other ranks of one training run inside the block.

    In a Hydra multirun, they get the arguments of the current job. At the end, the process group is destroyed, so that
    the next training in this process can start new ranks.
    """
    external = {name: os.environ[name] for name in (*LAUNCHED, LOG_LEVEL) if name in os.environ}
    os.environ.setdefault(LOG_LEVEL, "ERROR")  # otherwise other ranks print C++ stack traces when rank 0 ends
    from torch import distributed

    try:
        with _arguments_of_job(run):
            yield
    finally:
        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        for name in (*LAUNCHED, LOG_LEVEL):
            os.environ.pop(name, None)
        os.environ.update(external)


@contextmanager
def _arguments_of_job(run: Path) -> Iterator[None]:
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        yield
        return
    config: Any = HydraConfig.get()
    argv, folder = sys.argv, config.run.dir
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, short in FILE_OPTIONS.items():
        parser.add_argument(f"--{name}", f"-{short}")
    given = vars(parser.parse_known_args(argv[1:])[0])
    options = [f"--{name}={value}" for name in FILE_OPTIONS if (value := given[name.replace("-", "_")])]
    searched = [text for text in config.overrides.hydra if text.lstrip("+").startswith("hydra.searchpath=")]
    with read_write(config):
        config.run.dir = str(run)  # Lightning passes this folder to the other ranks
    sys.argv = [argv[0], *options, *searched, *config.overrides.task]
    try:
        yield
    finally:
        sys.argv = argv
        with read_write(config):
            config.run.dir = folder


# Ranks that end when the process that launched them ends.

WATCH_S = 1.0  # seconds between two checks of the parent process


@contextmanager
def ending_with_parent() -> Iterator[None]:
    """Send SIGTERM to this process if its parent process, which launched the rank, ends inside the block."""
    # The user, not a launcher, has started rank 0 of Lightning.
    if torchrun_ranks() is None and os.environ.get("LOCAL_RANK", "0") == "0":
        yield
        return
    parent, ended = os.getppid(), threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_S):
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def explained_loss(rank: int, timeout_s: float, advice: Callable[[], str]) -> Iterator[None]:
    """Convert an error of the process group to an InputError. `advice`: returns a sentence on how to resume."""
    from torch.distributed import DistError

    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, DistError) and "gloo" not in text.lower() and "NCCL" not in text:
            raise
        is_late = "timed out" in text.lower() or "timeout" in text.lower()
        problem = f"did not answer within {timeout_s:g} s (runtime.rank_timeout)" if is_late else "has ended"
        raise InputError(f"rank {rank}", f"another rank {problem}", advice()) from None
