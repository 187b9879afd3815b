"""Logger for TensorBoard, which writes to the folder `tensorboard` of the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.targets import Config
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger, shown_names


class _Curves(TensorBoardLogger):
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(shown_names(metrics), step)


class TensorBoardRun(RunLogger):
    """Logs the curves of a run and its final scores to TensorBoard."""

    service = "TensorBoard"

    def __init__(self, curves: TensorBoardLogger):
        self.curves = curves

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> TensorBoardRun:
        return cls(_Curves(run, name="tensorboard", version=""))

    def _log_result(self, finished: FinishedRun) -> None:
        self.curves.log_metrics(finished.scores_beside_curves())
        self.curves.save()
