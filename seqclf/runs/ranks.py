"""Ranks that torchrun starts: they train one model together, with the trainer that fits their number."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import read_write

from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.system.run_folder import is_first_rank, remove_empty_folder

if TYPE_CHECKING:
    from torch.distributed import Store

    from seqclf.training.options import TrainConfig


class Ranks(NamedTuple):
    """`rank`: of this process, from 0. `world_size`: all processes, `local_world_size` of them on each machine."""

    rank: int
    world_size: int
    local_world_size: int

    @property
    def num_nodes(self) -> int:
        return self.world_size // self.local_world_size


def torchrun_ranks() -> Ranks | None:
    """Return the ranks of which torchrun started this one, None for a process that is alone or that others started."""
    # Lightning starts ranks too, without this variable and with the arguments that it was told.
    if "LOCAL_WORLD_SIZE" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return None
    return Ranks(*(int(os.environ[name.upper()]) for name in Ranks._fields))


def join_ranks(config: TrainConfig, written: Collection[str]) -> TrainConfig:
    """Return the config with the trainer's devices, machines and strategy that torchrun has decided.

    `written`: keys of the config that the user wrote. Raises InputError if one of them contradicts torchrun.
    """
    ranks = torchrun_ranks()
    if ranks is None:
        return config
    if config.debug.ends_early:
        raise InputError(f"debug={config.debug.name}", "looks at a model in one process", "run it without torchrun")
    trainer = config.trainer
    joined: dict[str, Any] = {}
    for name, number in {"devices": ranks.local_world_size, "num_nodes": ranks.num_nodes}.items():
        value: Any = trainer.get(name)
        given = _count(value) if f"trainer.{name}" in written else None
        if given is None:
            joined[name] = number
        elif given != number:
            raise InputError(
                f"trainer.{name}={value}",
                f"torchrun started {ranks.world_size} ranks, {ranks.local_world_size} on each machine",
                f"write trainer.{name}={number}, or leave it to torchrun",
            )
    if trainer.get("strategy") == "auto":
        joined["strategy"] = "ddp"
    return config.model_copy(update={"trainer": {**trainer, **joined}})


def _count(devices: Any) -> int | None:
    """Return how many devices a value of `trainer.devices` stands for, None if all there are.

    >>> [_count(devices) for devices in (2, "2", [0, 3], "0, 3", "auto", -1)]
    [2, 2, 2, 2, None, None]
    """
    if isinstance(devices, str):
        devices = devices.split(",") if "," in devices else -1 if devices == "auto" else int(devices)
    if isinstance(devices, list):
        return len(devices)
    return None if devices is None or devices < 0 else devices


# The run folder, whose name holds the time at which a rank started.

POLL_S = 0.05
FILE_OPTIONS = ("config_path", "config_name", "config_dir")  # of Hydra's command line
_TRAININGS = itertools.count()  # of this process: a program may train several times


def shared_run_folder(run: Path) -> Path:
    """Return the run folder of rank 0, on every rank of torchrun. Removes the empty one that another rank was given."""
    ranks = torchrun_ranks()
    if ranks is None:
        return run
    store, key = _store(), f"seqclf/run-folder-{next(_TRAININGS)}"
    if ranks.rank == 0:
        store.set(key, str(run))
        return run
    while not store.check([key]):  # `get` waits without handling signals
        time.sleep(POLL_S)
    shared = Path(store.get(key).decode())
    if shared != run:
        remove_empty_folder(run)
    return shared


@contextmanager
def only_rank_zero_prints() -> Iterator[None]:
    """Print nothing on the console of other ranks inside the block. Their errors are printed."""
    before = console.quiet
    console.quiet = before or not is_first_rank()
    try:
        yield
    finally:
        console.quiet = before


@cache
def _store() -> Store:
    """Return the store through which torchrun's ranks meet."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


# Ranks that Lightning starts, by the command line of this process.

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")  # variables that Lightning sets
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


@contextmanager
def launching_ranks(run: Path) -> Iterator[None]:
    """Let Lightning start the other ranks of one training inside the block, whatever the process trains later.

    Other ranks get the arguments of this job, instead of those of the multirun that it belongs to. At the end the ranks
    part, so that the next training of this process starts ranks of its own.
    """
    external = {name: os.environ[name] for name in (*LAUNCHED, LOG_LEVEL) if name in os.environ}
    os.environ.setdefault(LOG_LEVEL, "ERROR")  # or other ranks print frames of C++ where rank 0 is gone
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
    given = get_args_parser().parse_args(argv[1:])
    options = [f"--{name.replace('_', '-')}={value}" for name in FILE_OPTIONS if (value := getattr(given, name))]
    searched = [text for text in config.overrides.hydra if text.lstrip("+").startswith("hydra.searchpath=")]
    with read_write(config):
        config.run.dir = str(run)  # which Lightning hands to the other ranks
    sys.argv = [argv[0], *options, *searched, *config.overrides.task]
    try:
        yield
    finally:
        sys.argv = argv
        with read_write(config):
            config.run.dir = folder


# Ranks that end together with the process that started them.

WATCH_S = 1.0  # seconds between two looks at the parent process


@contextmanager
def ending_with_parent() -> Iterator[None]:
    """Send this process SIGTERM inside the block if the process that launched its rank ends: nobody else would."""
    # Lightning's rank 0 was launched by the user.
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
