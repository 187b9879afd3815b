"""Refit (refit=true): the chosen model of a run, trained anew on train and validation together.

Validation rows can choose a model or train it, but not both at once. The first training chooses: a threshold that no
held-out rows set, and with `monitor` the number of epochs. The second training repeats it with the rows of validation
too. Its model is judged on test and exported.
"""

from __future__ import annotations

import io
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.seed import isolate_rng

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.data.storage.joined import join_splits
from seqclf.data.storage.store import Split
from seqclf.documents.formatting import enumeration
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.refit import Refit
from seqclf.runs.fit import Training, run_trainer, take_weights
from seqclf.runs.processes.process_settings import training_threads
from seqclf.runs.trainer import make_task, make_trainer
from seqclf.system import progress
from seqclf.training.callbacks import BEFORE_REFIT, StopOnSignal, TrainingProgress, write_checkpoint
from seqclf.training.checkpoint import REFITTED
from seqclf.training.module import SequenceTask
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.options import TrainConfig

FOLDER = "refit"  # folder inside the run folder, removed at the end
JOINED = ("train", "validation")  # rows held out for a threshold are in a split of their own, and stay out


def check_refit(training: Training, key: str = "refit=true", instead: str = "set refit=false") -> None:
    """Raise InputError if a run cannot be refitted. `key`: setting that asks for it. `instead`: another remedy."""
    config, splits, task, trainer = training.config, training.dataset.splits, training.task, training.trainer
    reasons = {
        ("trains on validation, so no rows would judge the model", "give data.test or data.split.test"): (
            list(splits)[-1] == "validation"
        ),
        ("trains a second model in one process", "set trainer.devices=1"): trainer.world_size > 1,
        ("has no schedule of a changing network", "remove structure"): bool(config.structure),
        (
            "an adaptive model chooses its halting threshold by validation rows",
            "choose another model",
        ): task.model.halts,
        ("repeats a number of steps, not a time", "set trainer.max_epochs instead of trainer.max_time"): bool(
            config.trainer.get("max_time")
        ),
        ("leaves out the callbacks of trainer.callbacks, which may change the training", "remove them"): bool(
            config.trainer.get("callbacks")
        ),
    }
    for (problem, remedy), applies in reasons.items():
        if applies:
            raise InputError(key, problem, f"{remedy}, or {instead}")


def refit(training: Training, chosen: Path, run: Path, joined: Sequence[str] = JOINED) -> tuple[SequenceTask, Refit]:
    """Train the chosen model anew on the rows of the splits `joined`, and put it into best.ckpt of the run.

    `chosen`: checkpoint of the model that `training` chose.

    The second training starts as the first one, with the same seed, and takes as many epochs as the chosen model had,
    over the same part of the learning rate schedule. Each row is then read as often as in the training whose length
    validation chose. On rows whose order decides (100 of train, 30 of validation, 10 seeds), the test loss changed by
    -0.056 with as many epochs, by -0.023 with as many steps, and by -0.025 with a schedule that ends at the chosen
    epoch. There is no validation and no early stopping.
    """
    first, folder, started = training.load(chosen), run / FOLDER, time.perf_counter()
    target = run / "checkpoints" / "best.ckpt"
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    console.print(f"trains the chosen model anew on {enumeration(joined)}", soft_wrap=True)
    try:
        with progress.stage(f"joining {enumeration(joined)}"):
            rows = join_splits([training.dataset.all_splits[name] for name in joined], folder / "data")
        task = _new_task(training, rows)
        plan = _plan(training, rows, first.trained_steps)
        _train(task, training.config, plan, folder)
        task.model.take_from(first.model)
        _save(task, plan, chosen, target)
        task = training.load(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record = Refit(
        rows=len(rows.labels),
        epochs=round(plan.epochs, 2),
        steps=plan.steps,
        chosen_step=first.trained_steps,
        seconds=round(time.perf_counter() - started, 2),
    )
    return task, record


class _Plan(NamedTuple):
    """`steps`: optimizer steps of the second training. `scheduled`: steps that its learning rate schedule spans."""

    batches: SequenceDataModule
    epochs: float
    steps: int
    scheduled: float


def _plan(training: Training, rows: Split, chosen_step: int) -> _Plan:
    """Return the batches and the length of the second training. Its batches are as large as those of the first."""
    batches, trainer = training.batches, training.trainer

    def same_batches(split: Split) -> SequenceDataModule:
        ranks = batches.planned_ranks
        return SequenceDataModule({"train": split}, batches.batching, seed=batches.seed, ranks=ranks)

    joined = same_batches(rows)
    before = _steps_per_epoch(same_batches(batches.splits["train"]), trainer)
    epochs = chosen_step / before
    now = _steps_per_epoch(joined, trainer)
    limits = [before * (-1 if trainer.max_epochs is None else trainer.max_epochs), trainer.max_steps]
    scheduled = min((limit for limit in limits if limit >= 0), default=math.inf) * now / before
    return _Plan(joined, epochs, max(1, round(epochs * now)), scheduled)


def _steps_per_epoch(batches: SequenceDataModule, trainer: pl.Trainer) -> int:
    count, limit = len(batches.train_dataloader()), trainer.limit_train_batches
    used = min(count, limit) if isinstance(limit, int) else int(count * limit)
    return max(1, math.ceil(used / trainer.accumulate_grad_batches))


def _new_task(training: Training, rows: Split) -> SequenceTask:
    """Return a task for `rows` with the weights that the first training started from."""
    config, dataset = training.config, training.dataset
    with isolate_rng():
        pl.seed_everything(config.seed, workers=True, verbose=False)
        task = make_task(config.model_dump(), replace(dataset, splits={**dataset.splits, "train": rows}))
        if config.start is not None:
            take_weights(task, Path(config.start))
    task.hparams["dataset"]["rows"] = dataset.description()["rows"]  # the splits of the data stay as they are
    return task


def _train(task: SequenceTask, config: TrainConfig, plan: _Plan, folder: Path) -> None:
    settings = {
        **config.model_dump()["trainer"],
        **dict.fromkeys(("callbacks", "profiler", "min_epochs", "min_steps", "enable_checkpointing")),
        **{"max_epochs": -1, "max_steps": plan.steps},
        **{"limit_val_batches": 0, "num_sanity_val_steps": 0},
    }
    task.scheduled_steps = plan.scheduled
    bar = TrainingProgress()
    watching = NotFiniteSteps(plan.batches.splits, skip=config.runtime.on_nan == "skip")
    trainer = make_trainer(settings, [watching, bar, StopOnSignal(folder / "last.ckpt")], folder)
    threads = training_threads(config.runtime, task.model, plan.batches)
    run_trainer(trainer, task, plan.batches, bar if config.trainer["enable_progress_bar"] else None, threads)


def _save(task: SequenceTask, plan: _Plan, chosen: Path, target: Path) -> None:
    """Write the refitted task to `target`, and keep the chosen checkpoint beside it, from which a run can resume."""
    first = torch.load(chosen, map_location="cpu", weights_only=True)
    state = {
        "pytorch-lightning_version": first["pytorch-lightning_version"],
        "epoch": math.ceil(plan.epochs),
        "global_step": plan.steps,
        "state_dict": {name: tensor.cpu() for name, tensor in task.state_dict().items()},
        "hyper_parameters": dict(task.hparams),
        REFITTED: True,
    }
    content = io.BytesIO()
    torch.save(state, content)
    if chosen == target:
        write_checkpoint(target.with_name(BEFORE_REFIT), chosen.read_bytes())
    write_checkpoint(target, content.getbuffer())
