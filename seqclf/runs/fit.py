"""Training pipeline: a prepared dataset and a config become a run folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import lightning.pytorch as pl
import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import parse_rule
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.runs.evaluate import THRESHOLD, evaluate_and_export
from seqclf.runs.holdout import hold_out
from seqclf.runs.hooks import Hooks, make_debugger
from seqclf.runs.lost_ranks import SignsOfLife, explained_loss
from seqclf.runs.ranks import launching_ranks
from seqclf.runs.trainer import is_launched_rank, make_task, make_trainer, trainer_error
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import RESULTS, is_resumed, run_outputs
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training.callbacks import write_checkpoint
from seqclf.training.custom_network_checks import check_foreign_network, check_reloaded
from seqclf.training.loggers.run_logger import RunLogger, open_logger
from seqclf.training.module import SequenceTask, load_task
from seqclf.training.options import TrainConfig
from seqclf.training.progress_bar import TrainingProgress
from seqclf.training.resume import check_resumable, epochs_started, left_out
from seqclf.training.step_memory import explained_memory
from seqclf.training.structure_schedule import StructureSchedule


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
    rule, _ = parse_rule(config.decision, dataset.classes, dataset.positive)
    # Before training, because the rows that set a threshold must not choose the epoch.
    dataset, held_out = hold_out(dataset, config.decision, rule)
    splits = dataset.splits if held_out is None else {**dataset.splits, THRESHOLD: held_out}
    batches = SequenceDataModule(splits, config.batching, seed=config.seed)
    task = make_task(plain, dataset)
    schedule = StructureSchedule(plain["structure"])
    schedule.check(task)
    debugger = make_debugger(config.debug.name, splits)
    hooks = Hooks.build(config, run, debugger, schedule, splits)
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
        lost = explained_loss(signs, trainer.global_rank, timeout_s, hooks.resume_advice)
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
        result, bundle, parity = evaluate_and_export(
            *(config, plain, dataset, batches, task, run, logger, history, data_warnings), prints_verdict=prints_verdict
        )
        failed = False
    except MisconfigurationException as error:  # a callback that needs a logger, for example
        raise trainer_error(error) from None
    except Terminated as end:
        if is_launched_rank(trainer):
            end.code = 0  # the launcher kills rank 0, which may still be writing, if another rank fails
        end.advice = hooks.resume_advice()
        raise
    finally:
        if logger is not None:
            logger.close(failed)
    return TrainResult(
        run=str(run),
        epochs=len(hooks.record.history),
        bundle=None if bundle is None else str(bundle),
        split=result.split,
        independent=result.is_independent,
        use=not result.not_yet,
        **{name: round(getattr(result.metrics, name), 6) for name in MAIN_METRICS},
        parity=parity,
        train_s=round(trained_s, 2),
        total_s=round(time.perf_counter() - started, 2),
    )


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
