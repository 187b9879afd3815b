"""Callbacks of a training run, built from its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from seqclf.data.storage.store import Split
from seqclf.evaluation.smoothed_choice import MONITORED
from seqclf.training.callbacks import StopOnSignal, checkpoints, early_stopping
from seqclf.training.checks.check_targets import build_callbacks
from seqclf.training.epoch_record import EpochRecord, show_epoch
from seqclf.training.length import epochs_between_checkpoints
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.options import TrainConfig
from seqclf.training.structure_schedule import StructureSchedule


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a run. `resumed`: path of the checkpoint that the run continues, None for a new run."""

    record: EpochRecord
    best: ModelCheckpoint
    last: ModelCheckpoint
    all: list[Callback]
    last_path: Path
    resumed: Path | None

    @classmethod
    def build(
        cls,
        config: TrainConfig,
        run: Path,
        schedule: StructureSchedule,
        splits: Mapping[str, Split],
    ) -> Hooks:
        folder = run / "checkpoints"
        resumed = None if config.checkpoint is None else Path(config.checkpoint)
        record = EpochRecord(run / "metrics.csv", show_epoch)
        monitored = None if config.monitor is None else MONITORED
        between = epochs_between_checkpoints(config.trainer)
        best, last, *inside = checkpoints(folder, config.checkpoint_every, resumed, monitored, between)
        stopping = [] if config.patience is None else [early_stopping(config.patience)]
        added = build_callbacks(config.trainer.get("callbacks"))
        changing = [schedule] if schedule.changes else []
        hooks = [
            *changing,
            NotFiniteSteps(splits, skip=config.runtime.on_nan == "skip"),
            *stopping,
            record,
            best,
            last,
            *inside,
            StopOnSignal(folder / "last.ckpt", config.runtime.rank_timeout),
            *added,
        ]
        return cls(record, best, last, hooks, folder / "last.ckpt", resumed)
