"""Fit: a config and a data set become a trained task, and what validation sets after the training."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.runs.finished_steps import FinishedSteps, file_hash, fit_inputs
from seqclf.runs.hooks import Hooks
from seqclf.runs.processes.process_settings import training_threads, using_threads
from seqclf.runs.processes.ranks import explained_loss, launching_ranks
from seqclf.runs.threshold_rows import fit_to_validation
from seqclf.runs.trainer import explained_memory, is_launched_rank, make_task, make_trainer, trainer_error
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import RESULTS, is_resumed, remove_outputs, run_outputs
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training.callbacks import TrainingProgress, take_last, write_checkpoint
from seqclf.training.checks.network_checks import check_foreign_network
from seqclf.training.length import resolve_length
from seqclf.training.load_task import load_task
from seqclf.training.loggers.run_logger import RunLogger, open_logger
from seqclf.training.options import TrainConfig
from seqclf.training.resume import check_resumable, epochs_started
from seqclf.training.structure_schedule import StructureSchedule
from seqclf.training.task import SequenceTask

CHECKPOINTS = ("best.ckpt", "last.ckpt")


@dataclass(frozen=True)
class Training:
    """A training that is set up and checked, before its first step.

    `config`: with all that follows from the data. `folder`: the run folder, or a folder inside it.
    """

    config: TrainConfig
    dataset: Dataset
    batches: SequenceDataModule
    task: SequenceTask
    schedule: StructureSchedule
    hooks: Hooks
    bar: TrainingProgress
    trainer: pl.Trainer
    threads: int
    folder: Path

    @classmethod
    def build(cls, config: TrainConfig, dataset: Dataset, folder: Path) -> Training:
        """Set up the training of a config on a data set. Raises InputError for settings that cannot be used."""
        _check_monitor(config.monitor, dataset)
        batches = SequenceDataModule(dataset.all_splits, config.batching, seed=config.seed)
        task = make_task(config.model_dump(), dataset)
        config = config.model_copy(update={"model": task.hparams["model"]})  # with what a network takes from the data
        if config.start is not None:
            take_weights(task, Path(config.start))
        config = resolve_length(config, batches, task.model.shortening)
        schedule = StructureSchedule(config.model_dump()["structure"])
        schedule.check(task)
        threads = training_threads(config.runtime, task.model, batches)
        hooks = Hooks.build(config, folder, schedule, batches.splits)
        bar = TrainingProgress()
        trainer = make_trainer(config.model_dump()["trainer"], [*hooks.all, bar], folder, config.runtime.rank_timeout)
        schedule.check_trainer(trainer)
        return cls(config, dataset, batches, task, schedule, hooks, bar, trainer, threads, folder)

    @property
    def trust(self) -> set[str]:
        """Packages that the config names. They are trusted, because their code has run already."""
        config = self.config.model_dump()
        return {package_of(target) for part in ("model", "loss") for _, target in targets(config[part], part)}

    @cached_property
    def inputs(self) -> str:
        """Hash of the inputs of the training. Its code is hashed once, because a training may import more modules."""
        return fit_inputs(self.config, self.dataset)

    def run(self) -> None:
        """Train the task, from its checkpoint if the config names one."""
        timeout_s = self.config.runtime.rank_timeout
        with explained_loss(self.trainer.global_rank, timeout_s, self.hooks.resume_advice):
            bar = self.bar if self.config.trainer["enable_progress_bar"] else None
            run_trainer(self.trainer, self.task, self.batches, bar, self.threads, self.hooks.resumed)

    @property
    def has_reached_limit(self) -> bool:
        """True if the training took all its epochs or steps."""
        trainer = self.trainer
        has_all_epochs = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch
        return has_all_epochs or 0 <= trainer.max_steps <= trainer.global_step

    def checkpoint(self) -> Path:
        """Return the checkpoint that is evaluated: the best one, or else the last one. Call this method after `run`."""
        hooks, resumed = self.hooks, self.hooks.resumed
        if resumed is not None:
            take_last(hooks.best, Path(resumed), self.trainer.global_step)
        # Without validation there is no best checkpoint, but a last checkpoint.
        checkpoint = hooks.best.best_model_path or hooks.last.best_model_path or resumed
        if not checkpoint:
            raise InputError("trainer", "the limits leave no epoch to train", "raise max_epochs, max_steps or max_time")
        if resumed is not None and not hooks.last_path.is_file():  # all epochs were trained in another run folder
            write_checkpoint(hooks.last_path, resumed.read_bytes())
            if checkpoint == resumed:
                checkpoint = hooks.last_path  # a file of another run stays as it is
        return Path(checkpoint)

    def saved_checkpoint(self) -> Path:
        """Return the checkpoint that a finished training left in its folder."""
        places = (self.folder / "checkpoints" / name for name in CHECKPOINTS)
        return next(path for path in places if path.is_file())

    def load(self, checkpoint: Path) -> SequenceTask:
        """Return the task of a checkpoint of this training, so that the evaluated model is the one that others load."""
        return load_task(checkpoint, trust=self.trust).to(self.trainer.strategy.root_device)


def _check_monitor(monitor: str | None, dataset: Dataset) -> None:
    """Raise InputError for a metric of classes that validation rows cannot tell apart."""
    present = {dataset.classes[code] for code in np.unique(dataset.splits["validation"].labels)}
    lacks = dataset.positive not in (None, *present)
    if monitor not in (None, "loss", "accuracy") and (lacks or len(present) < 2):
        problem = f"validation has {f'no row of {dataset.positive}' if lacks else 'rows of one class alone'}"
        raise InputError(f"monitor={monitor}", problem, "hold out other rows, or set monitor=loss")


def take_weights(task: SequenceTask, checkpoint: Path) -> None:
    """Let a task start from the weights of a checkpoint. Raises InputError if they are those of another model."""
    trust = {package_of(target) for part in ("model", "loss") for _, target in targets(task.hparams[part], part)}
    other = load_task(checkpoint, trust)  # the packages of this task have run their code already
    if differs := what_differs(task.hparams, other.hparams):
        remedy = "train with its settings, and data.encoders=BUNDLE/encoders of its bundle"
        raise InputError(f"start={checkpoint}", f"has other {differs}", remedy)
    task.model.load_state_dict(other.model.state_dict())
    task.is_fitted = True


def what_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return what keeps the weights of one task from another, None if they fit. Arguments: hyperparameters of tasks."""
    if one["model"] != other["model"]:
        return "settings of the model"
    parts = (key for key in ("classes", "fields", "encoders") if one["dataset"][key] != other["dataset"][key])
    return next(parts, None)


def run_trainer(
    trainer: pl.Trainer,
    task: SequenceTask,
    batches: SequenceDataModule,
    bar: TrainingProgress | None,
    threads: int,
    resumed: Path | None = None,
) -> None:
    """Fit a task. A signal ends the training after a batch. `bar`: progress line, None to show none."""
    shown = nullcontext() if bar is None else bar.shown()
    full, folder = explained_memory(task, batches), Path(trainer.default_root_dir)
    with launching_ranks(folder), deferred_signals(), shown, full, using_threads(threads):
        trainer.fit(task, datamodule=batches, ckpt_path=resumed, weights_only=True)


@dataclass(frozen=True)
class Fitted:
    """A trained task, with what validation rows set after the training.

    `checkpoint`: its file. `history`: rows of metrics.csv. `weighs_heads`: True if validation set buffers of the
    network, such as the weights of heads. `seconds`: time of the training.
    """

    training: Training
    task: SequenceTask
    checkpoint: Path
    history: Sequence[JsonObject]
    weighs_heads: bool
    seconds: float


def finished_fit(training: Training, steps: FinishedSteps) -> Fitted | None:
    """Return the result of the training if an earlier command has finished it in the run folder, else None."""
    folder = training.folder / "checkpoints"
    found = steps.find("fit", training.inputs)
    is_resumed_here = is_resumed(training.folder, training.config.checkpoint)
    if found is None or not is_resumed_here or training.trainer.world_size > 1:
        return None
    places = [folder / name for name in CHECKPOINTS]
    checkpoint = next((path for path in places if file_hash(path) == found["hash"]), None)
    if checkpoint is None:
        return None
    task = training.load(checkpoint)
    return Fitted(training, task, checkpoint, found["history"], found["weighs_heads"], found["seconds"])


def fit(training: Training, steps: FinishedSteps) -> Fitted | None:
    """Train a model. Returns None on ranks other than 0, and for `trainer.fast_dev_run`."""
    started = time.perf_counter()
    training.run()
    if not training.trainer.is_global_zero:
        return None
    if training.config.trainer["fast_dev_run"]:
        return None
    seconds = time.perf_counter() - started
    checkpoint = training.checkpoint()
    task = training.load(checkpoint)
    weighs = fit_to_validation(task, training.dataset.splits["validation"], checkpoint)
    fitted = Fitted(training, task, checkpoint, training.hooks.record.history, weighs, seconds)
    result = {
        "hash": file_hash(checkpoint),
        "history": fitted.history,
        "weighs_heads": weighs,
        "seconds": seconds,
    }
    if training.has_reached_limit:  # what a callback stopped goes on in a resumed run
        steps.record("fit", training.inputs, result)
    return fitted


@contextmanager
def opened_run(training: Training, *, finished: bool) -> Iterator[RunLogger | None]:
    """Yield the logger of a run, None on ranks other than 0, and close it at the end of the block.

    Checks a foreign network and the checkpoint to resume, clears the folder of the run and writes config.yaml.
    `finished`: True if the training is, so that results in the folder may still be those of its checkpoint.
    """
    if not finished:
        _check_resumed(training)
    logger = None
    if training.trainer.is_global_zero:
        check_foreign_network(training.task, training.config.export, shortest_tokens(training.batches.splits))
        logger = _open_logger(training, keep=finished)
    training.trainer.loggers = [logger.curves] if logger is not None else []
    failed = True
    try:
        yield logger
        failed = False
    except MisconfigurationException as error:  # a callback that needs a logger, for example
        raise trainer_error(error) from None
    except Terminated as end:
        if is_launched_rank(training.trainer):
            end.code = 0  # with another exit code, the launcher would kill rank 0, which may still be writing
        end.advice = training.hooks.resume_advice()
        raise
    finally:
        if logger is not None:
            logger.close(failed)


def _check_resumed(training: Training) -> None:
    resumed, schedule, plain = training.hooks.resumed, training.schedule, training.config.model_dump()
    if resumed is None:
        return
    if schedule.changes:
        schedule.advance(training.task, epochs_started(resumed))  # structure changes that the checkpoint already has
    training.batches.trainer = training.trainer  # tells the batches how many devices share them
    check_resumable(plain, training.task, training.batches)


def shortest_tokens(splits: Mapping[str, Split]) -> int:
    """Return the number of tokens of the shortest sequence."""
    return min(int(split.sequences.lengths.min()) for split in splits.values() if len(split.sequences))


def _open_logger(training: Training, *, keep: bool) -> RunLogger | None:
    config, task = training.config.model_dump(), training.task
    logger = open_logger(config["logger"], training.folder, config)
    clear_run_folder(config, training.dataset, training.folder, keep=keep)
    weights = sum(weight.numel() for weight in task.parameters())
    if task.model_text:
        console.print(f"model: {task.model_text}", soft_wrap=True)
    device = training.trainer.strategy.root_device
    console.print(f"model: {weights:,} weights on {device}, threads: {training.threads}")
    return logger


def clear_run_folder(config: Config, dataset: Dataset, run: Path, *, keep: bool = False) -> None:
    """Delete stale outputs of an earlier run, unless `keep`, and write the files that are known before training."""
    stale = [] if keep else RESULTS if is_resumed(run, config["checkpoint"]) else run_outputs(run)
    remove_outputs(run, ("quarantine.jsonl", *stale))
    write_output(run / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if (dataset.folder / "quarantine.jsonl").is_file():
        shutil.copy(dataset.folder / "quarantine.jsonl", run)
