"""Task and Trainer of a run, built from its config."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import StrategyRegistry

from seqclf.config.targets import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError, first_line
from seqclf.runs.processes.ranks import torchrun_ranks
from seqclf.training.callbacks import AtomicCheckpointIO
from seqclf.training.module import SequenceTask

FORKS = ("spawn", "fork", "notebook")  # endings of the names of strategies whose launcher forks this process
DDP = "use trainer.strategy=ddp"


def make_task(config: Config, dataset: Dataset) -> SequenceTask:
    """Return the task that a config describes.

    Pretrained vectors of the dataset are loaded into its network. Raises InputError for invalid settings.
    """
    task = SequenceTask(
        dataset.description(),
        config["model"],
        config["loss"],
        config["optimizer"],
        config["monitor"],
        config["seed"],
    )
    for name, vectors in dataset.vectors().items():
        task.model.load_vectors(name, vectors)
    task.make_optimizer(steps=1)  # raises InputError for impossible settings before any file is written
    return task


def make_trainer(settings: Config, hooks: list[Callback], run: Path, rank_timeout_s: float) -> pl.Trainer:
    """Return a Trainer with the given callbacks. Raises InputError for invalid settings.

    `settings`: the config group `trainer`. `hooks`: callbacks. `rank_timeout_s`: seconds that a rank waits for others.
    """
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


def trainer_error(error: Exception) -> InputError:
    return InputError("trainer", first_line(error))


def is_launched_rank(trainer: pl.Trainer) -> bool:
    """Return True if Lightning started this process as an additional rank.

    Lightning watches the exit code of an additional rank.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return not trainer.is_global_zero and isinstance(environment, LightningEnvironment)
