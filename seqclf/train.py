"""`python -m seqclf.train`: train a model on labelled sequences, evaluate the model, and export a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.runs.train import TrainingResult
    from seqclf.training.options import TrainConfig


@command("train", "seqclf.training.options.TrainConfig")
def main(config: TrainConfig) -> TrainingResult:
    """Prepare the data, train a model, evaluate the model, and export a bundle."""
    from seqclf.config.hydra_command import run_folder
    from seqclf.runs.train import run_training

    return run_training(_with_group(config), run_folder())


def _with_group(config: TrainConfig) -> TrainConfig:
    """In a multirun, set the logger's key `group` to the name of the multirun, unless the user has set the key."""
    from seqclf.config.hydra_command import sweep_name

    if getattr(config.logger, "group", "") is not None:  # some loggers have no key `group`
        return config
    return config.model_copy(update={"logger": config.logger.model_copy(update={"group": sweep_name()})})


if __name__ == "__main__":
    main()
