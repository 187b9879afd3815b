"""Task and Trainer of a run, built from its config."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from seqclf.config.targets import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError, first_line
from seqclf.models.network import as_network
from seqclf.runs.ranks import torchrun_ranks
from seqclf.training.callbacks import AtomicCheckpointIO
from seqclf.training.module import SequenceTask


def make_task(config: Config, dataset: Dataset) -> SequenceTask:
    """Return the task of a config, with the pretrained vectors of the dataset. Raises InputError on bad settings."""
    task = SequenceTask(
        dataset.description(),
        config["model"],
        config["loss"],
        config["optimizer"],
        config["monitor"],
        config["seed"],
    )
    for name, vectors in dataset.vectors().items():
        as_network(task.model).load_vectors(name, vectors)
    task.make_optimizer(steps=1)  # raises on impossible settings before anything is written
    return task


def make_trainer(settings: Config, hooks: list[Callback], run: Path) -> pl.Trainer:
    """Return a Trainer with the callbacks `hooks`. `settings`: the block trainer. Raises InputError on bad ones."""
    fixed = {
        "callbacks": hooks,
        "enable_progress_bar": False,  # ours counts all epochs
        # Opened later, on rank 0 alone, when the settings are known to be possible.
        "logger": False,
        "default_root_dir": run,
        "plugins": [AtomicCheckpointIO()],
        "enable_model_summary": False,
    }
    try:
        trainer = pl.Trainer(**{**settings, **fixed})
    except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: alike callbacks
        raise trainer_error(error) from None
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise InputError(
            f"trainer.strategy={settings['strategy']}",
            "its processes are forks, whose training is lost to this one",
            "use trainer.strategy=ddp",
        )
    ranks = torchrun_ranks()
    if ranks is not None and trainer.world_size != ranks.world_size:  # each rank would train by itself
        raise InputError(
            f"trainer.strategy={settings['strategy']}",
            f"trains with {trainer.world_size} of the {ranks.world_size} ranks that torchrun started",
            "use trainer.strategy=ddp",
        )
    return trainer


def trainer_error(error: Exception) -> InputError:
    return InputError("trainer", first_line(error))


def is_launched_rank(trainer: pl.Trainer) -> bool:
    """Return True if Lightning's launcher started this process. It watches the exit code."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return not trainer.is_global_zero and isinstance(environment, LightningEnvironment)
