"""Debug run that prints the tensor shapes of one optimizer step, and saves no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.terminal import console, make_console
from seqclf.runs.fit import clear_run_folder
from seqclf.runs.trainer import make_task, make_trainer
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import DEBUG_RESULT
from seqclf.training.debugging.shape_table import ShapeTable
from seqclf.training.options import TrainConfig

# Settings of the Trainer that affect the computation of an optimizer step. A debug run ignores all other Trainer
# settings of the user. It runs on one device, without validation, checkpoints and callbacks.
KEPT = (
    *("accelerator", "precision", "gradient_clip_val", "gradient_clip_algorithm", "deterministic", "benchmark"),
    *("detect_anomaly", "profiler"),
)
ONLY_STEPS: Config = {"max_epochs": 1, "limit_val_batches": 0, "enable_checkpointing": False}
WIDEST = 1000  # maximum width of the table of shapes, in characters


@dataclass(frozen=True, kw_only=True)
class ShapesResult(JsonResult):
    """Result of `debug=shapes`, printed as a JSON line.

    debug.json has the same values, and also `modules`. `longest`: padded length of the batch in tokens. `padding`:
    fraction of the padded batch that is padding. `loss`: loss of the batch.
    """

    run: str
    debug: str = "shapes"
    rows: int
    longest: int
    padding: float
    weights: int
    loss: float


def debug_run(config: TrainConfig, dataset: Dataset, run: Path) -> ShapesResult:
    """Run `debug=shapes`, write config.yaml and debug.json to the folder `run`, and return the result."""
    batches = SequenceDataModule(dataset.splits, config.batching, seed=config.seed)
    plain = config.model_dump()
    task = make_task(plain, dataset)
    shapes = ShapeTable()
    trainer = _open(plain, dataset, run, shapes, steps=1)
    trainer.fit(task, datamodule=batches)
    assert shapes.batch is not None
    console.print(f"first batch: {shapes.batch}", soft_wrap=True)
    wide = make_console()
    wide.width = WIDEST  # long table rows are wrapped, not cut
    wide.print(shapes.table(), soft_wrap=True)
    result = ShapesResult(
        run=str(run),
        rows=shapes.batch.rows,
        longest=shapes.batch.longest,
        padding=round(shapes.batch.padding, 6),
        weights=sum(weight.numel() for weight in task.parameters()),
        loss=round(float(task.step_loss), 6),
    )
    _write(run, result, {"modules": list(shapes.shapes.values())})
    return result


def _open(plain: Config, dataset: Dataset, run: Path, callback: Callback, steps: int) -> Trainer:
    """Return a Trainer that runs at most `steps` optimizer steps on one device.

    This function also clears the run folder.
    """
    kept = {key: value for key, value in plain["trainer"].items() if key in KEPT}
    devices = plain["trainer"].get("devices")
    first = devices[:1] if isinstance(devices, list) else 1
    trainer = make_trainer({**kept, **ONLY_STEPS, "max_steps": steps, "devices": first}, [callback], run)
    clear_run_folder(plain, dataset, run)
    return trainer


def _write(run: Path, result: JsonResult, details: Mapping[str, Any]) -> None:
    text = json.dumps({**result.to_dict(), **details}, indent=1, ensure_ascii=False)
    write_output(run / DEBUG_RESULT, text + "\n")
