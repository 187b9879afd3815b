"""The model of all rows (data.split.fold=all): the training of the first fold, repeated with its validation and test.

No row is left to judge this model. It is exported with the scores of the folds.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import lightning.pytorch as pl
from lightning.pytorch.utilities.seed import isolate_rng

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.data.storage.store import Split
from seqclf.data.write_store import join_splits
from seqclf.documents.formatting import enumeration
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.runs.prepare import all_cross_fit
from seqclf.runs.training_run import Training, make_task, make_trainer, run_trainer, take_weights
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.system import progress
from seqclf.system.run_folder import MODEL
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.stop_on_signal import StopOnSignal
from seqclf.training.task import SequenceTask, save_model, set_by_validation
from seqclf.training.training_log import TrainingProgress

FOLDER = "all-rows"  # folder inside the run folder, removed at the end


def check_repeatable(training: Training) -> None:
    """Raise InputError if the training of a fold cannot be repeated on all rows."""
    config, fits = training.config, all_cross_fit(training.task.model)
    timed, hooked = config.trainer.get("max_time"), config.trainer.get("callbacks")
    reasons = [
        (config.structure, "has no schedule of a changing network", "remove structure"),
        (not fits, "the network sets more than weights of heads by validation rows", "choose another model"),
        (timed, "repeats a number of steps, not a time", "set trainer.max_epochs instead of trainer.max_time"),
        (hooked, "leaves out the callbacks of trainer.callbacks, which may change the training", "remove them"),
    ]
    for applies, problem, remedy in reasons:
        if applies:
            raise InputError(f"data.split.fold={ALL_FOLDS}", problem, f"{remedy}, or set export=false")


def train_on_all_rows(training: Training, run: Path) -> SequenceTask:
    """Repeat the finished training of a fold on the rows of all its splits, and save the model in `run`.

    The second training, without validation, starts as the first one, with the same seed, and takes as many epochs as
    the chosen model had, over the same part of the learning rate schedule: each row is read as often as in the training
    whose length validation chose. On rows whose order decides (100 of train, 30 of validation, 10 seeds), the test loss
    changed by -0.056 with as many epochs, by -0.023 with as many steps, and by -0.025 with a schedule that ends at the
    chosen epoch.
    """
    chosen, target, folder = training.folder / MODEL, run / MODEL, run / FOLDER
    first, splits = training.load(chosen), training.dataset.splits
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    console.print(f"trains the chosen model anew on {enumeration([*splits])}", soft_wrap=True)
    try:
        with progress.stage(f"joining {enumeration([*splits])}"):
            rows = join_splits([*splits.values()], folder / "data")
        task = _new_task(training, rows)
        plan = _plan(training, rows, first.trained_steps)
        _train(task, training, plan, folder)
        before = {name: task.model.get_buffer(name).clone() for name in set_by_validation(chosen)}
        for name in before:
            task.model.get_buffer(name).copy_(first.model.get_buffer(name))
        task.trained_steps = plan.steps
        save_model(target, task, math.ceil(plan.epochs), before)
        return training.load(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    config, dataset = training.config, training.dataset
    with isolate_rng():
        pl.seed_everything(config.seed, workers=True, verbose=False)
        task = make_task(config, replace(dataset, splits={**dataset.splits, "train": rows}))
        if config.start is not None:
            take_weights(task, Path(config.start))
    task.hparams["dataset"]["rows"] = dataset.description()["rows"]  # the splits of the data stay as they are
    return task


def _train(task: SequenceTask, training: Training, plan: _Plan, folder: Path) -> None:
    config = training.config
    settings = {
        **config.model_dump()["trainer"],
        **dict.fromkeys(("callbacks", "profiler", "min_epochs", "min_steps", "enable_checkpointing")),
        **{"max_epochs": -1, "max_steps": plan.steps},
        **{"limit_val_batches": 0, "num_sanity_val_steps": 0},
    }
    task.scheduled_steps = plan.scheduled
    bar = TrainingProgress()
    watching = NotFiniteSteps(plan.batches.splits, skip=config.runtime.on_nan == "skip")
    timeout_s = config.runtime.rank_timeout
    trainer = make_trainer(settings, [watching, bar, StopOnSignal(folder / "last.ckpt", timeout_s)], folder, timeout_s)
    shown = bar if config.trainer["enable_progress_bar"] else None
    run_trainer(trainer, task, plan.batches, shown, training.threads)
