"""A training that is set up and checked: task, batches, callbacks and Trainer of a config and a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import StrategyRegistry

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.build import Checked, Config, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.models.embedding import load_vectors
from seqclf.runs.process_settings import training_threads, using_threads
from seqclf.runs.ranks import explained_loss, launching_ranks, torchrun_ranks
from seqclf.settings.train_settings import TrainConfig
from seqclf.system.resources import is_out_of_memory
from seqclf.system.run_folder import CURVES, resume_advice
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training.best_epoch import HeadStopping, checkpoints, early_stopping
from seqclf.training.change_structure import StructureSchedule
from seqclf.training.check_targets import build_callbacks
from seqclf.training.checkpoint import AtomicCheckpointIO, read_checkpoint, write_checkpoint
from seqclf.training.length import epochs_between_checkpoints, resolve_length
from seqclf.training.network_checks import check_foreign_network
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.resume import check_resumable, epochs_started, newest_checkpoint
from seqclf.training.smoothed_monitor import MONITORED
from seqclf.training.stop_on_signal import StopOnSignal
from seqclf.training.task import SequenceTask, load_task, set_by_validation
from seqclf.training.training_log import EpochRecord, TrainingProgress, show_epoch

FORKS = ("spawn", "fork", "notebook")  # endings of the names of strategies whose launcher forks this process
DDP = "use trainer.strategy=ddp"


class Hooks(NamedTuple):
    """Callbacks of a run. `resumed`: path of the checkpoint that the run continues, None for a new run."""

    record: EpochRecord
    best: ModelCheckpoint
    last: ModelCheckpoint
    all: list[Callback]
    last_path: Path
    resumed: Path | None

    @classmethod
    def build(cls, config: TrainConfig, run: Path, schedule: StructureSchedule, splits: Mapping[str, Split]) -> Hooks:
        folder = run / "checkpoints"
        resumed = None if config.checkpoint is None else Path(config.checkpoint)
        record = EpochRecord(run / CURVES, show_epoch)
        monitored = None if config.monitor is None else MONITORED
        between = epochs_between_checkpoints(config.trainer)
        best, last, *inside = checkpoints(folder, config.checkpoint_every, resumed, monitored, between)
        changing = [schedule] if schedule.changes else []
        watching = NotFiniteSteps(splits, skip=config.runtime.on_nan == "skip")
        stopping: list[Callback] = [] if config.patience is None else [early_stopping(config.patience)]
        if isinstance(config.head_patience, int) and not schedule.changes:
            stopping.append(HeadStopping(config.head_patience))
        stop = StopOnSignal(folder / "last.ckpt", config.runtime.rank_timeout)
        added = build_callbacks(config.trainer.get("callbacks"))
        hooks = [*changing, watching, *stopping, record, best, last, *inside, stop, *added]
        return cls(record, best, last, hooks, folder / "last.ckpt", resumed)


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
        pl.seed_everything(config.seed, workers=True, verbose=False)  # so that each build has the same initial weights
        batches = SequenceDataModule(dataset.all_splits, config.batching, seed=config.seed)
        task = make_task(config, dataset)
        config = config.model_copy(update={"model": Checked(task.hparams["model"])})  # with what the data resolves
        if config.start is not None and config.checkpoint is None:  # a resumed training has weights of its own
            take_weights(task, Path(config.start))
        config = resolve_length(config, batches, task.model.shortening)
        schedule = StructureSchedule(config.model_dump()["structure"])
        schedule.check(task)
        threads = training_threads(config.runtime, task.model, batches)
        hooks = Hooks.build(config, folder, schedule, batches.splits)
        bar = TrainingProgress()
        trainer = make_trainer(config.model_dump()["trainer"], [*hooks.all, bar], folder, config.runtime.rank_timeout)
        schedule.check_trainer(trainer)
        if hooks.resumed is not None and schedule.changes:  # structure changes that the checkpoint already has
            schedule.advance(task, epochs_started(hooks.resumed))
        return cls(config, dataset, batches, task, schedule, hooks, bar, trainer, threads, folder)

    def run(self) -> None:
        """Train the task, from its checkpoint if the config names one."""
        timeout_s = self.config.runtime.rank_timeout
        advice = partial(resume_advice, self.folder, self.config.checkpoint)
        with self.explained_end(), explained_loss(self.trainer.global_rank, timeout_s, advice):
            bar = self.bar if self.config.trainer["enable_progress_bar"] else None
            run_trainer(self.trainer, self.task, self.batches, bar, self.threads, self.hooks.resumed)

    def check(self) -> None:
        """Raise InputError for a checkpoint that cannot be resumed, or a network of one's own that breaks a rule."""
        if self.hooks.resumed is not None:
            self.batches.trainer = self.trainer  # tells the batches how many devices share them
            check_resumable(self.config.model_dump(), self.task, self.batches)
        if self.trainer.is_global_zero:
            check_foreign_network(self.task, self.config.export, shortest_tokens(self.batches.splits))

    @contextmanager
    def explained_end(self) -> Iterator[None]:
        """Convert errors of settings in the block, and let a launched rank that is terminated end without an error."""
        try:
            yield
        except MisconfigurationException as error:  # a callback that needs a logger, for example
            raise InputError("trainer", first_line(error)) from None
        except Terminated as end:
            end.advice = resume_advice(self.folder, self.config.checkpoint)
            environment = getattr(self.trainer.strategy, "cluster_environment", None)
            if not self.trainer.is_global_zero and isinstance(environment, LightningEnvironment):
                # Lightning has launched this rank. With another exit code, it would kill rank 0, which may be writing.
                end.code = 0
            raise

    @property
    def has_reached_limit(self) -> bool:
        """True if the training took all its epochs or steps."""
        trainer = self.trainer
        has_all_epochs = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch
        return has_all_epochs or 0 <= trainer.max_steps <= trainer.global_step

    def checkpoint(self) -> Path:
        """Return the checkpoint of the finished model: the best one, or else the last one. Call it after `run`."""
        hooks, resumed, best = self.hooks, self.hooks.resumed, self.hooks.best.best_model_path
        if resumed is not None and not hooks.last_path.is_file():  # all epochs were trained in another run folder
            write_checkpoint(hooks.last_path, resumed.read_bytes())
        # Without validation there is no best checkpoint, but a last checkpoint.
        places = [] if self.config.monitor and best else [hooks.last_path, *([resumed] if resumed else [])]
        step = self.trainer.global_step
        last = (path for path in places if path.is_file() and read_checkpoint(path)["global_step"] == step)
        chosen = next(last, Path(best) if best else newest_checkpoint(hooks.last_path.parent))
        if chosen is None:
            raise InputError("trainer", "the limits leave no epoch to train", "raise max_epochs, max_steps or max_time")
        return chosen

    @property
    def device(self) -> torch.device:
        """Device of the training."""
        return self.trainer.strategy.root_device

    def load(self, checkpoint: Path) -> SequenceTask:
        """Return the task of a file of this training, so that the evaluated model is the one that others load."""
        return load_task(checkpoint, trust=trusted(self.config.model_dump())).to(self.device)


def trusted(settings: Mapping[str, Any]) -> set[str]:
    """Return the packages that settings name. They are trusted, because their code has run already."""
    return {package_of(target) for part in ("model", "loss") for _, target in targets(settings[part], part)}


def _check_monitor(monitor: str | None, dataset: Dataset) -> None:
    """Raise InputError for a metric of classes that validation rows cannot tell apart."""
    present = {dataset.classes[code] for code in np.unique(dataset.splits["validation"].labels)}
    lacks = dataset.positive not in (None, *present)
    if monitor in {*EPOCH_METRICS} - {"loss", "accuracy"} and (lacks or len(present) < 2):
        problem = f"validation has {f'no row of {dataset.positive}' if lacks else 'rows of one class alone'}"
        raise InputError(f"monitor={monitor}", problem, "hold out other rows, or set monitor=loss")


def take_weights(task: SequenceTask, checkpoint: Path) -> None:
    """Let a task start from the weights of a checkpoint. Raises InputError if they are those of another model."""
    if not checkpoint.is_file():
        raise InputError(f"start={checkpoint}", "no such file")
    other = load_task(checkpoint, trusted(task.hparams))
    if differs := what_differs(task.hparams, other.hparams):
        remedy = "train with its settings, and data.encoders=BUNDLE/encoders of its bundle"
        raise InputError(f"start={checkpoint}", f"has other {differs}", remedy)
    task.model.load_state_dict({**other.model.state_dict(), **set_by_validation(checkpoint)})
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


def shortest_tokens(splits: Mapping[str, Split]) -> int:
    """Return the number of tokens of the shortest sequence."""
    return min(int(split.sequences.lengths.min()) for split in splits.values() if len(split.sequences))


def make_task(config: TrainConfig, dataset: Dataset) -> SequenceTask:
    """Return the task of a config, with the dataset's pretrained vectors in its network, or raise InputError."""
    blocks: tuple[Any, Any, Any] = (config.model, config.loss, config.model_dump()["optimizer"])
    own: Any = config.metrics
    task = SequenceTask(dataset.description(), *blocks, config.monitor, config.seed, metrics=own)
    for name, vectors in dataset.vectors().items():
        load_vectors(task.model, name, vectors)
    task.make_optimizer(steps=1)  # raises InputError for impossible settings before any file is written
    return task


def make_trainer(settings: Config, hooks: list[Callback], run: Path, rank_timeout_s: float) -> pl.Trainer:
    """Return a Trainer for the config group `trainer` with the callbacks `hooks`, or raise InputError."""
    strategy = settings["strategy"]
    if str(strategy).endswith(FORKS):
        problem = "its processes are forks, whose training is lost to this one"
        raise InputError(f"trainer.strategy={strategy}", problem, DDP)
    fixed = {
        "callbacks": hooks,
        "enable_progress_bar": False,  # `TrainingProgress` shows a progress bar over all epochs
        # Loggers are opened later, on rank 0 only, after the settings have been checked.
        "logger": False,
        "default_root_dir": run,
        "plugins": [AtomicCheckpointIO()],
        "enable_model_summary": False,
    }
    try:
        trainer = pl.Trainer(**{**settings, **fixed})
        if trainer.world_size > 1 and isinstance(strategy, str):  # a name takes no arguments, such as the timeout
            entry = StrategyRegistry["ddp" if strategy == "auto" else strategy]
            arguments = {**entry["init_params"], "timeout": timedelta(seconds=rank_timeout_s)}
            trainer = pl.Trainer(**{**settings, **fixed, "strategy": entry["strategy"](**arguments)})
        # Lightning raises RuntimeError for duplicate callbacks.
    except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:
        raise InputError("trainer", first_line(error)) from None
    ranks = torchrun_ranks()
    if ranks is not None and trainer.world_size != ranks.world_size:  # each rank would train a model of its own
        problem = f"trains with {trainer.world_size} of the {ranks.world_size} ranks that torchrun started"
        raise InputError(f"trainer.strategy={strategy}", problem, DDP)
    return trainer


def device_of(settings: Mapping[str, Any]) -> torch.device:
    """Return the device on which a Trainer with settings of the config group `trainer` computes."""
    chosen: dict[str, Any] = {key: settings[key] for key in ("accelerator", "devices") if key in settings}
    return pl.Trainer(**chosen, barebones=True).strategy.root_device


@contextmanager
def explained_memory(task: SequenceTask, batches: SequenceDataModule) -> Iterator[None]:
    """Convert an out-of-memory error in the block into an InputError that describes the last training batch."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.batching.max_tokens
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # a batch of one sequence may exceed the limit
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        problem = f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens"
        raise InputError(f"step {task.global_step + 1}", problem, f"{remedy}, or the size of the model") from None
