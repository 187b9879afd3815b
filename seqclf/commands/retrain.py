"""Train the model of a bundle again on other data, and compare the two."""

from __future__ import annotations

from seqclf.config.hydra_config import run_folder, typed_overrides
from seqclf.runs.retraining import RetrainConfig, RetrainResult, retrain


def main(config: RetrainConfig) -> RetrainResult:
    """Train, compare the old and the new model on the same rows, and say whether to promote the new one."""
    return retrain(config, run_folder(), typed_overrides())
