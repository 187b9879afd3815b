"""`python -m seqclf.retrain`: train the model of a bundle again on other data, and compare the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.runs.retrain import RetrainConfig, RetrainResult


@command("retrain", "seqclf.runs.retrain.RetrainConfig")
def main(config: RetrainConfig) -> RetrainResult:
    """Train, compare the old and the new model on the same rows, and say whether to promote the new one."""
    from seqclf.config.hydra_command import run_folder, typed_overrides
    from seqclf.runs.retrain import retrain

    return retrain(config, run_folder(), typed_overrides())


if __name__ == "__main__":
    main()
