"""Runs that only look at a model: one batch learned by heart, or the shapes of one step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.terminal import console
from seqclf.runs.fit import clear_run_folder
from seqclf.runs.trainer import make_task, make_trainer
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import DEBUG_RESULT
from seqclf.training.debugging.options import OverfitOptions
from seqclf.training.debugging.overfit import LossCurve, overfit, without_regularisation
from seqclf.training.debugging.overfit_verdict import OverfitRecord, OverfitVerdict, curve, judge
from seqclf.training.debugging.shape_table import ShapeTable
from seqclf.training.options import TrainConfig

# One device, one epoch of nothing but steps: neither validation, nor checkpoints, nor callbacks of the user.
ONLY_STEPS: Config = {
    "max_epochs": 1,
    "min_epochs": None,
    "min_steps": None,
    "max_time": None,
    "limit_train_batches": None,
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    "accumulate_grad_batches": 1,
    "enable_checkpointing": False,
    "fast_dev_run": False,
    "callbacks": None,
    "strategy": "auto",
    "num_nodes": 1,
}
LEFT_OUT = ("overfit_batches", "val_check_interval", "check_val_every_n_epoch", "reload_dataloaders_every_n_epochs")


@dataclass(frozen=True, kw_only=True)
class OverfitResult(JsonResult):
    """The JSON line of `debug=overfit_one_batch`, and, with `curve` and `advice`, the content of debug.json.

    `loss`: of the last step, whose lowest possible value is `lowest_loss`. `accuracy`: of the rows of the batch.
    """

    run: str
    debug: str = "overfit_one_batch"
    learned: bool
    rows: int
    steps: int
    first_loss: float
    loss: float
    lowest_loss: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class ShapesResult(JsonResult):
    """The JSON line of `debug=shapes`, and, with `modules`, the content of debug.json.

    `longest`: tokens of each row of the batch with padding. `padding`: share of the tokens that are padding. `loss`:
    of the batch.
    """

    run: str
    debug: str = "shapes"
    rows: int
    longest: int
    padding: float
    weights: int
    loss: float


def debug_run(config: TrainConfig, dataset: Dataset, run: Path) -> OverfitResult | ShapesResult:
    """Carry out a debug choice that ends without a trained model. Writes config.yaml and debug.json into `run`."""
    plain = config.model_dump()
    if isinstance(config.debug, OverfitOptions):
        return _overfit(config, plain, config.debug, dataset, run)
    return _shapes(config, plain, dataset, run)


def _shapes(config: TrainConfig, plain: Config, dataset: Dataset, run: Path) -> ShapesResult:
    task = make_task(plain, dataset)
    batches = SequenceDataModule(dataset.splits, config.batching, seed=config.seed)
    table = ShapeTable()
    trainer = make_trainer(_only_steps(plain["trainer"], steps=1), [table], run)
    clear_run_folder(plain, dataset, run)
    trainer.fit(task, datamodule=batches)
    for line in table.lines():
        console.print(line, soft_wrap=True)
    assert table.batch is not None
    result = ShapesResult(
        run=str(run),
        rows=table.batch.rows,
        longest=table.batch.longest,
        padding=round(table.batch.padding, 6),
        weights=sum(weight.numel() for weight in task.parameters()),
        loss=round(float(task.step_loss), 6),
    )
    _write(run, result, {"modules": table.rows()})
    return result


def _write(run: Path, result: JsonResult, details: Mapping[str, Any]) -> None:
    text = json.dumps({**result.to_dict(), **details}, indent=1, ensure_ascii=False)
    write_output(run / DEBUG_RESULT, text + "\n")


def _overfit(config: TrainConfig, plain: Config, options: OverfitOptions, dataset: Dataset, run: Path) -> OverfitResult:
    bare = {part: without_regularisation(plain[part]) for part in ("model", "loss", "optimizer")}
    task = make_task({**plain, **bare}, dataset)
    batches = SequenceDataModule(dataset.splits, config.batching, seed=config.seed)
    losses = LossCurve(options.goal)
    trainer = make_trainer(_only_steps(plain["trainer"], options.steps), [losses], run)
    clear_run_folder(plain, dataset, run)
    record = overfit(trainer, task, batches, losses, options.goal, options.steps)
    verdict = judge(record)
    _show(record, verdict)
    result = OverfitResult(
        run=str(run),
        learned=verdict.learned,
        rows=record.rows,
        steps=len(record.losses),
        first_loss=round(record.losses[0], 6),
        loss=round(record.losses[-1], 6),
        lowest_loss=round(record.floor, 6),
        accuracy=round(record.accuracy, 6),
    )
    _write(run, result, {**asdict(verdict), "losses": list(record.losses)})
    return result


def _only_steps(settings: Mapping[str, Any], steps: int) -> Config:
    """Return the settings of a Trainer that takes `steps` steps on one device and does nothing else."""
    kept = {key: value for key, value in settings.items() if key not in LEFT_OUT}
    devices = settings["devices"][:1] if isinstance(settings.get("devices"), list) else 1
    return {**kept, **ONLY_STEPS, "max_steps": steps, "devices": devices}


def _show(record: OverfitRecord, verdict: OverfitVerdict) -> None:
    points = curve(record.losses)
    cells = [("step", "loss"), *((f"{step:,}", f"{loss:.3g}") for step, loss in points)]
    widths = [max(map(len, column)) for column in cells]
    for line in range(2):
        console.print("  ".join(f"{column[line]:>{width}}" for column, width in zip(cells, widths, strict=True)))
    console.print(verdict.text, style="bold" if verdict.learned else "bold red", soft_wrap=True)
    for line_text in verdict.advice:
        console.print(f"  look at: {line_text}", soft_wrap=True)
    for line_text in verdict.notes:
        console.print(f"  note: {line_text}", style="yellow", soft_wrap=True)
    console.print(
        "This says nothing about new rows. For a model, train without debug=overfit_one_batch.", soft_wrap=True
    )
