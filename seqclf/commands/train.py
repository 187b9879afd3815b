"""Train a model on labelled sequences, evaluate the model, and export a bundle."""

from __future__ import annotations

from seqclf.config.hydra_config import run_folder, sweep_name
from seqclf.runs.run_training import TrainingResult, run_training
from seqclf.settings.train_settings import TrainConfig


def main(config: TrainConfig) -> TrainingResult:
    """Prepare the data, train a model, evaluate the model, and export a bundle."""
    return run_training(_with_group(config), run_folder())


def _with_group(config: TrainConfig) -> TrainConfig:
    """In a multirun, set the logger's key `group` to the name of the multirun, unless the user has set the key."""
    if getattr(config.logger, "group", "") is not None:  # some loggers have no key `group`
        return config
    return config.model_copy(update={"logger": config.logger.model_copy(update={"group": sweep_name()})})
