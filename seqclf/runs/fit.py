"""Training pipeline: a prepared dataset and a config become a run folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import yaml
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, subset
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError, first_line
from seqclf.evaluation.decision import parse_rule, uses_holdout
from seqclf.evaluation.holdout import holdout_rows
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.models.ensemble import Ensemble
from seqclf.runs.evaluate import THRESHOLD, evaluate_and_export
from seqclf.runs.lost_ranks import SignsOfLife, explained_loss
from seqclf.runs.ranks import launching_ranks, torchrun_ranks
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.memory_errors import is_out_of_memory
from seqclf.system.run_folder import RESULTS, is_resumed, run_outputs
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training.callbacks import AtomicCheckpointIO, StopOnSignal, checkpoints, early_stopping, write_checkpoint
from seqclf.training.check_targets import build_callbacks
from seqclf.training.custom_network_checks import check_foreign_network, check_reloaded
from seqclf.training.debugging.anomaly_trace import AnomalyTrace
from seqclf.training.debugging.finite_check import FiniteCheck
from seqclf.training.debugging.module_hooks import Debugger
from seqclf.training.epoch_record import EpochRecord, show_epoch
from seqclf.training.loggers.run_logger import RunLogger, open_logger
from seqclf.training.module import SequenceTask, load_task
from seqclf.training.not_finite import NotFiniteSteps
from seqclf.training.options import TrainConfig
from seqclf.training.progress_bar import TrainingProgress
from seqclf.training.resume import check_resumable, epochs_started, left_out
from seqclf.training.structure_schedule import StructureSchedule

# Holdout: validation rows for the threshold of a guarantee, used for neither the epoch nor the settings.


def hold_out(dataset: Dataset, settings: Mapping[str, Any], rule: str) -> tuple[Dataset, Split | None]:
    """Return the dataset without the validation rows that are held out, and those rows.

    `settings`: of conf/decision. `rule`: the decision rule. The rows are a stratified share, and the only row of a
    class stays in validation, and groups stay together. The rows are None if the rule guarantees nothing or the share
    is 0. They are None for a provisional decision (`settings["provisional"]`) too,
    which leaves the same rows out of validation but does not see them.
    """
    if not uses_holdout({**settings, "provisional": False}, rule):
        return dataset, None
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, settings["holdout"], validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    holdout = None if settings["provisional"] else subset(validation, np.flatnonzero(held_out))
    return replace(dataset, splits={**dataset.splits, "validation": remaining}), holdout


# The callback of a debug choice that watches a usual training.


def make_debugger(name: str, splits: Mapping[str, Split]) -> Debugger | None:
    """Return the callback of `debug=name`, None where nothing is watched. `splits`: by name, to name their rows.

    >>> make_debugger("none", {}) is None
    True
    """
    if name == "nan":
        return FiniteCheck(splits)
    return AnomalyTrace() if name == "anomaly" else None


@dataclass(frozen=True, kw_only=True)
class TrainResult(JsonResult):
    """The JSON line of `train`.

    `split`: the one that the model is judged by, with its main metrics. `independent`: its rows chose nothing about the
    model, and share no group and no time with the splits before. `use`: nothing speaks against using it (the alarms,
    the guarantee, the rows). `bundle` and `parity`, the largest error of the exported model, are None without an
    export.
    """

    run: str
    epochs: int
    bundle: str | None
    split: str
    independent: bool
    use: bool
    loss: float
    accuracy: float
    recall: float
    precision: float
    f1: float
    parity: float | None
    train_s: float
    total_s: float


@dataclass(frozen=True)
class FastDevRunResult(JsonResult):
    """The JSON line of `train trainer.fast_dev_run=…`, which evaluates nothing."""

    run: str
    fast_dev_run: bool = True


def train(
    config: TrainConfig,
    dataset: Dataset,
    run: Path,
    data_warnings: Sequence[str] = (),
    *,
    prints_verdict: bool = True,
) -> TrainResult | FastDevRunResult | None:
    """Train a model, evaluate its best epoch on every split, and export it.

    Fills the folder `run`. Call it in `process_settings`. Returns None on ranks other than 0. `data_warnings`: those of
    the survey, for the report, which adds those about the network. `prints_verdict`: see `evaluate_and_export`.
    """
    started = time.perf_counter()
    plain = config.model_dump()  # checkpoints, loggers and config.yaml take plain values
    rule, _ = parse_rule(plain["decision"], dataset.classes, dataset.positive)
    # Before training, because the rows that set a threshold must not choose the epoch.
    dataset, held_out = hold_out(dataset, plain["decision"], rule)
    splits = dataset.splits if held_out is None else {**dataset.splits, THRESHOLD: held_out}
    batches = SequenceDataModule(splits, seed=config.seed, **plain["batching"])
    task = make_task(plain, dataset)
    schedule = StructureSchedule(plain["structure"])
    schedule.check(task)
    debugger = make_debugger(config.debug.name, splits)
    hooks = _Hooks.build(config, run, debugger, schedule, splits)
    bar = TrainingProgress()
    signs = SignsOfLife()
    trainer = make_trainer(plain["trainer"], [*hooks.all, bar, signs], run)
    schedule.check_trainer(trainer)
    resumed = hooks.resumed
    if resumed is not None:
        if schedule.changes:
            schedule.advance(task, epochs_started(resumed))  # of the structure of the checkpoint
        batches.trainer = trainer  # knows how many devices share the batches
        check_resumable(plain, task, batches)
        if trainer.is_global_zero and (settings := left_out(resumed, hooks.all)):
            show_note(f"resumed without {', '.join(settings)}, which the run of the checkpoint had")
    logger = None
    if trainer.is_global_zero:
        data_warnings = [*data_warnings, *_model_warnings(task, config.export, splits)]
        logger = _open_run(plain, dataset, run, task, trainer)
    trainer.loggers = [logger.curves] if logger is not None else []
    failed = True
    try:
        shown = bar.shown() if config.trainer["enable_progress_bar"] else nullcontext()
        explained = debugger.explained() if debugger is not None else nullcontext()
        timeout_s = config.runtime.rank_timeout
        if hasattr(trainer.strategy, "_timeout"):  # made by Lightning from its name, which takes no arguments
            trainer.strategy._timeout = timedelta(seconds=timeout_s)
        advice = partial(_resume_advice, hooks.last_path, resumed)
        lost = explained_loss(signs, trainer.global_rank, timeout_s, advice)
        full = explained_memory(task, batches)
        with launching_ranks(run), deferred_signals(), shown, explained, lost, full:
            trainer.fit(task, datamodule=batches, ckpt_path=resumed, weights_only=True)
        if not trainer.is_global_zero:
            return None
        if debugger is not None:
            console.print(f"debug={config.debug.name}: {debugger.summary()}")
        if config.trainer["fast_dev_run"]:
            failed = False
            return FastDevRunResult(str(run))
        trained_s = time.perf_counter() - started
        checkpoint = hooks.best.best_model_path or hooks.last.best_model_path or resumed  # last: nothing was validated
        if not checkpoint:
            raise InputError("trainer", "the limits leave no epoch to train", "raise max_epochs, max_steps or max_time")
        if resumed is not None and not hooks.last_path.is_file():  # all epochs were trained in another folder
            write_checkpoint(hooks.last_path, resumed.read_bytes())
        # Read back from its file: what is evaluated and exported is what anyone else will load.
        trained, history = task, hooks.record.history
        task = load_task(checkpoint, trust=_trusted_packages(plain)).to(trainer.strategy.root_device)
        if _validates_all_rows(plain["trainer"]):
            check_reloaded(task, trained, batches, hooks.record.validation_losses)
        verdict = evaluate_and_export(
            *(config, dataset, batches, task, run, logger, history, data_warnings), prints_verdict=prints_verdict
        )
        failed = False
    except MisconfigurationException as error:  # a callback that needs a logger, for example
        raise _trainer_error(error) from None
    except Terminated as end:
        if _is_launched_rank(trainer):
            end.code = 0  # the launcher kills rank 0, which may still be writing, if another rank fails
        end.advice = _resume_advice(hooks.last_path, resumed)
        raise
    finally:
        if logger is not None:
            logger.close(failed)
    return TrainResult(
        run=str(run),
        epochs=len(hooks.record.history),
        bundle=None if verdict.bundle is None else str(verdict.bundle),
        split=verdict.split,
        independent=not verdict.metrics.used_for and dataset.leaks.is_apart(verdict.split),
        use=not verdict.not_yet,
        **{name: round(getattr(verdict.metrics, name), 6) for name in MAIN_METRICS},
        parity=verdict.parity,
        train_s=round(trained_s, 2),
        total_s=round(time.perf_counter() - started, 2),
    )


@dataclass(frozen=True)
class _Hooks:
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
    ) -> _Hooks:
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


@contextmanager
def explained_memory(task: SequenceTask, batches: SequenceDataModule) -> Iterator[None]:
    """Raise InputError, with the last batch, for an error about memory. `batches`: those that the task trains on."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.max_tokens()
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # which a batch of one sequence may exceed
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        raise InputError(
            f"step {task.global_step + 1}",
            f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens",
            f"{remedy}, or the size of the model",
        ) from None


def make_task(config: Config, dataset: Dataset) -> SequenceTask:
    """Return the task of a config, with the pretrained vectors of the dataset. Raises InputError on bad settings."""
    task = SequenceTask(
        dataset.description(),
        config["model"],
        config["loss"],
        config["optimizer"],
        config["monitor"],
        config["seed"],
    )
    network = task.model.members[0] if isinstance(task.model, Ensemble) else task.model
    for name, vectors in dataset.vectors().items():
        if not hasattr(network, "load_vectors"):
            raise InputError(
                f"data.fields.{name}.vectors",
                f"{config['model']['_target_']} has no method load_vectors(name, vectors)",
                "add one, or remove vectors",
            )
        task.model.load_vectors(name, vectors)
    task.make_optimizer(steps=1)  # raises on impossible settings before anything is written
    return task


def make_trainer(settings: Config, hooks: list[Callback], run: Path) -> pl.Trainer:
    """Return a Trainer with the callbacks `hooks`. `settings`: the block trainer. Raises InputError on bad ones."""
    fixed = {
        "callbacks": hooks,
        "enable_progress_bar": False,  # ours counts all epochs
        # Opened later, on rank 0 alone, when the settings are known to be possible.
        "logger": False,
        "default_root_dir": run,
        "plugins": [AtomicCheckpointIO()],
        "enable_model_summary": False,
    }
    try:
        trainer = pl.Trainer(**{**settings, **fixed})
    except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: alike callbacks
        raise _trainer_error(error) from None
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise InputError(
            f"trainer.strategy={settings['strategy']}",
            "its processes are forks, whose training is lost to this one",
            "use trainer.strategy=ddp",
        )
    ranks = torchrun_ranks()
    if ranks is not None and trainer.world_size != ranks.world_size:  # each rank would train by itself
        raise InputError(
            f"trainer.strategy={settings['strategy']}",
            f"trains with {trainer.world_size} of the {ranks.world_size} ranks that torchrun started",
            "use trainer.strategy=ddp",
        )
    return trainer


def _trainer_error(error: Exception) -> InputError:
    return InputError("trainer", first_line(error))


def _model_warnings(task: SequenceTask, export: bool, splits: Mapping[str, Split]) -> list[str]:
    """Return and print the warnings about a network of another package (see `check_foreign_network`)."""
    shortest = min(int(split.sequences.lengths.min()) for split in splits.values() if len(split.sequences))
    model_warnings = check_foreign_network(task, export, shortest)
    for line in model_warnings:
        console.print(line, style="yellow", soft_wrap=True)
    return model_warnings


def _open_run(config: Config, dataset: Dataset, run: Path, task: SequenceTask, trainer: pl.Trainer) -> RunLogger | None:
    """Open the logger, clear the folder and print the size of the model. Returns the logger."""
    logger = open_logger(config["logger"], run, config)
    clear_run_folder(config, dataset, run)
    weights = sum(weight.numel() for weight in task.parameters())
    console.print(f"model: {weights:,} weights on {trainer.strategy.root_device}, threads: {torch.get_num_threads()}")
    return logger


def clear_run_folder(config: Config, dataset: Dataset, run: Path) -> None:
    """Delete stale outputs of an earlier run, and write what is known before training."""
    resumed = is_resumed(run, config["checkpoint"])
    stale = RESULTS if resumed else run_outputs(run)
    for name in ("quarantine.jsonl", *stale):
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink(missing_ok=True)
    write_output(run / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if (dataset.folder / "quarantine.jsonl").is_file():
        shutil.copy(dataset.folder / "quarantine.jsonl", run)


def _trusted_packages(config: Config) -> set[str]:
    """Packages that the user's config names. Their code has run already."""
    return {package_of(target) for part in ("model", "loss") for _, target in targets(config[part], part)}


def _validates_all_rows(settings: Config) -> bool:
    """Return True if the scores of a validation are of all validation rows."""
    keys = ("limit_val_batches", "overfit_batches")
    # As text, because 1 is one batch and 1.0 all of them.
    return {str(settings.get(key)) for key in keys} <= {"None", "0", "0.0", "1.0"}


def _is_launched_rank(trainer: pl.Trainer) -> bool:
    """Return True if Lightning's launcher started this process. It watches the exit code."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return not trainer.is_global_zero and isinstance(environment, LightningEnvironment)


def _resume_advice(last: Path, resumed: Path | None) -> str:
    """Return the advice after a termination. Names only a checkpoint that exists."""
    checkpoint = next((path for path in (last, resumed) if path is not None and path.is_file()), None)
    return "no step was trained; start again" if checkpoint is None else f"resume with checkpoint={checkpoint}"
