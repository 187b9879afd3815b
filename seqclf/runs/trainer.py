"""Task and Trainer of a run, built from its config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import StrategyRegistry

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.build import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError, first_line
from seqclf.models.embedding import load_vectors
from seqclf.runs.processes.ranks import torchrun_ranks
from seqclf.settings.training import TrainConfig
from seqclf.system.resources import is_out_of_memory
from seqclf.training.checkpoint import AtomicCheckpointIO
from seqclf.training.task import SequenceTask

FORKS = ("spawn", "fork", "notebook")  # endings of the names of strategies whose launcher forks this process
DDP = "use trainer.strategy=ddp"


def make_task(config: TrainConfig, dataset: Dataset) -> SequenceTask:
    """Return the task of a config, with the dataset's pretrained vectors in its network, or raise InputError."""
    blocks: tuple[Any, Any, Any] = (config.model, config.loss, config.model_dump()["optimizer"])
    task = SequenceTask(dataset.description(), *blocks, config.monitor, config.seed)
    for name, vectors in dataset.vectors().items():
        load_vectors(task.model, name, vectors)
    task.make_optimizer(steps=1)  # raises InputError for impossible settings before any file is written
    return task


def make_trainer(settings: Config, hooks: list[Callback], run: Path, rank_timeout_s: float) -> pl.Trainer:
    """Return a Trainer for the config group `trainer` with the callbacks `hooks`, or raise InputError."""
    strategy = settings["strategy"]
    if str(strategy).endswith(FORKS):
        raise InputError(
            f"trainer.strategy={strategy}", "its processes are forks, whose training is lost to this one", DDP
        )
    fixed = {
        "callbacks": hooks,
        "enable_progress_bar": False,  # `TrainingProgress` shows a progress bar over all epochs
        # Loggers are opened later, on rank 0 only, after the settings have been checked.
        "logger": False,
        "default_root_dir": run,
        "plugins": [AtomicCheckpointIO()],
        "enable_model_summary": False,
    }
    try:
        trainer = pl.Trainer(**{**settings, **fixed})
        if trainer.world_size > 1 and isinstance(strategy, str):  # a name takes no arguments, such as the timeout
            entry = StrategyRegistry["ddp" if strategy == "auto" else strategy]
            arguments = {**entry["init_params"], "timeout": timedelta(seconds=rank_timeout_s)}
            trainer = pl.Trainer(**{**settings, **fixed, "strategy": entry["strategy"](**arguments)})
        # Lightning raises RuntimeError for duplicate callbacks.
    except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:
        raise trainer_error(error) from None
    ranks = torchrun_ranks()
    if ranks is not None and trainer.world_size != ranks.world_size:  # each rank would train a model of its own
        raise InputError(
            f"trainer.strategy={strategy}",
            f"trains with {trainer.world_size} of the {ranks.world_size} ranks that torchrun started",
            DDP,
        )
    return trainer


def device_of(settings: Mapping[str, Any]) -> torch.device:
    """Return the device on which a Trainer with settings of the config group `trainer` computes."""
    chosen: dict[str, Any] = {key: settings[key] for key in ("accelerator", "devices") if key in settings}
    return pl.Trainer(**chosen, barebones=True).strategy.root_device


def trainer_error(error: Exception) -> InputError:
    return InputError("trainer", first_line(error))


def is_launched_rank(trainer: pl.Trainer) -> bool:
    """Return True if Lightning started this process as an additional rank, whose exit code it watches."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return not trainer.is_global_zero and isinstance(environment, LightningEnvironment)


@contextmanager
def explained_memory(task: SequenceTask, batches: SequenceDataModule) -> Iterator[None]:
    """Convert an out-of-memory error in the block into an InputError that describes the last training batch."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.batching.max_tokens
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # a batch of one sequence may exceed the limit
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        raise InputError(
            f"step {task.global_step + 1}",
            f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens",
            f"{remedy}, or the size of the model",
        ) from None
