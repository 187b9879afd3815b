"""`python -m seqclf.train`: labelled sequences → a trained model, its scores, and a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.runs.steps import TrainingResult
    from seqclf.training.options import TrainConfig


@command("train", "seqclf.training.options.TrainConfig")
def main(config: TrainConfig) -> TrainingResult:
    """Prepare, train, score, export."""
    from seqclf.config.hydra_command import run_folder
    from seqclf.config.user_keys import written_keys
    from seqclf.runs.steps import run_training

    return run_training(_with_group(config), run_folder(), written_keys())


def _with_group(config: TrainConfig) -> TrainConfig:
    """Let the runs of a multirun share a group in the logger, unless one is set."""
    from seqclf.config.hydra_command import sweep_name

    if getattr(config.logger, "group", "") is not None:  # loggers without groups have no such key
        return config
    return config.model_copy(update={"logger": config.logger.model_copy(update={"group": sweep_name()})})


if __name__ == "__main__":
    main()
