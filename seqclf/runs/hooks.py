"""Callbacks of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from seqclf.data.storage.store import Split
from seqclf.training.callbacks import StopOnSignal, checkpoints, early_stopping
from seqclf.training.check_targets import build_callbacks
from seqclf.training.debugging.anomaly_trace import AnomalyTrace
from seqclf.training.debugging.finite_check import FiniteCheck
from seqclf.training.debugging.module_hooks import Debugger
from seqclf.training.epoch_record import EpochRecord, show_epoch
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.options import TrainConfig
from seqclf.training.structure_schedule import StructureSchedule


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a run. `resumed`: the checkpoint it continues."""

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
        debugger: Debugger | None,
        schedule: StructureSchedule,
        splits: Mapping[str, Split],
    ) -> Hooks:
        folder = run / "checkpoints"
        resumed = None if config.checkpoint is None else Path(config.checkpoint)
        record = EpochRecord(run / "metrics.csv", show_epoch)
        best, last, *inside = checkpoints(folder, config.checkpoint_every, resumed)
        stopping = [] if config.patience is None else [early_stopping(config.patience)]
        added = build_callbacks(config.trainer.get("callbacks"))
        watching = [] if debugger is None else [debugger]
        changing = [schedule] if schedule.changes else []
        # Before those that watch the network.
        hooks = [
            *changing,
            *watching,
            NotFiniteSteps(splits, skip=config.runtime.on_nan == "skip"),
            *stopping,
            record,
            best,
            last,
            *inside,
            StopOnSignal(folder / "last.ckpt"),
            *added,
        ]
        return cls(record, best, last, hooks, folder / "last.ckpt", resumed)

    def resume_advice(self) -> str:
        """Return the advice after a termination. Names only a checkpoint that exists."""
        paths = (self.last_path, self.resumed)
        checkpoint = next((path for path in paths if path is not None and path.is_file()), None)
        return "no step was trained; start again" if checkpoint is None else f"resume with checkpoint={checkpoint}"


def make_debugger(name: str, splits: Mapping[str, Split]) -> Debugger | None:
    """Return the callback of `debug=name`, None where nothing is watched. `splits`: by name, to name their rows.

    >>> make_debugger("none", {}) is None
    True
    """
    if name == "nan":
        return FiniteCheck(splits)
    return AnomalyTrace() if name == "anomaly" else None
