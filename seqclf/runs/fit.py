"""Training pipeline: a prepared dataset and a config become a run folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
import numpy as np
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, subset
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import GUARANTEED_RULES, parse_rule
from seqclf.evaluation.holdout import holdout_rows
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.evaluation.options import DecisionOptions
from seqclf.runs.evaluate import THRESHOLD, evaluate_and_export, split_outputs
from seqclf.runs.head_weights import fit_to_validation
from seqclf.runs.hooks import Hooks
from seqclf.runs.lost_ranks import explained_loss
from seqclf.runs.order_ablation import ABLATION, check_one_process, shuffled_contender
from seqclf.runs.process_settings import training_threads, using_threads
from seqclf.runs.ranks import launching_ranks
from seqclf.runs.refit import Chosen, check_refit, refit_model
from seqclf.runs.trainer import is_launched_rank, make_task, make_trainer, trainer_error
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import RESULTS, is_resumed, run_outputs
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training.callbacks import TrainingProgress, take_last, write_checkpoint
from seqclf.training.custom_network_checks import check_foreign_network, trained_padding_error
from seqclf.training.debugging.finite_check import FiniteCheck
from seqclf.training.length import resolve_length
from seqclf.training.loggers.run_logger import RunLogger, open_logger
from seqclf.training.module import SequenceTask, load_task
from seqclf.training.options import OnPadding, TrainConfig
from seqclf.training.resume import check_resumable, epochs_started, settings_left_out
from seqclf.training.step_memory import explained_memory
from seqclf.training.structure_schedule import StructureSchedule


def hold_out(dataset: Dataset, options: DecisionOptions, rule: str) -> tuple[Dataset, Split | None]:
    """Return the dataset without held-out validation rows, and the split of held-out rows.

    `rule`: the decision rule. The held-out rows are a stratified fraction of validation. Groups stay together, and a
    class with only one row keeps this row in validation. The split is None if the rule has no guarantee or if the
    fraction is 0. The split is also None for a `provisional` decision, but the same rows are left out of validation.
    """
    if rule not in GUARANTEED_RULES or not options.holdout:
        return dataset, None
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, options.holdout, validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    holdout = None if options.provisional else subset(validation, np.flatnonzero(held_out))
    return replace(dataset, splits={**dataset.splits, "validation": remaining}), holdout


@dataclass(frozen=True, kw_only=True)
class TrainResult(JsonResult):
    """Result of `train`, printed as a JSON line.

    `split`: split that the model is judged by; the metrics are the main metrics of this split. `independent`: True if
    the rows of this split chose nothing about the model and share no group and no time with earlier splits. `use`: True
    if there is no reason against using the model (see `reasons_against`). `bundle`: path of the bundle. `parity`:
    largest difference between the exported model and PyTorch. `bundle` and `parity` are None without an export.
    `padding_error`: see `RunResult`.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"padding_error"})

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
    padding_error: float | None = None
    train_s: float
    total_s: float


@dataclass(frozen=True)
class FastDevRunResult(JsonResult):
    """Result of `train trainer.fast_dev_run=…`, printed as a JSON line. Such a run evaluates nothing."""

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
    """Train a model, evaluate its last step or best epoch (`monitor`) on every split, and export it.

    Writes all files of the run into the folder `run`. Call this function inside `process_settings`. Returns None on
    ranks other than 0. `data_warnings`: warnings of the survey, which the report shows with warnings about the network.
    `prints_verdict`: see `evaluate_and_export`.
    """
    started = time.perf_counter()
    rule, _ = parse_rule(config.decision, dataset.classes, dataset.positive)
    # Rows are held out before training, because the rows that set a threshold must not choose the epoch.
    dataset, held_out = hold_out(dataset, config.decision, rule)
    splits = dataset.splits if held_out is None else {**dataset.splits, THRESHOLD: held_out}
    batches = SequenceDataModule(splits, config.batching, seed=config.seed)
    task = make_task(config.model_dump(), dataset)
    config = config.model_copy(update={"model": task.hparams["model"]})  # with what a network takes from the data
    config = resolve_length(config, batches, task.model.shortening)
    plain = config.model_dump()  # checkpoints, loggers and config.yaml take plain values
    schedule = StructureSchedule(plain["structure"])
    schedule.check(task)
    threads = training_threads(config.runtime, task.model, batches)
    check = FiniteCheck() if config.debug.name == "nan" else None
    hooks = Hooks.build(config, run, check, schedule, splits)
    bar = TrainingProgress()
    trainer = make_trainer(plain["trainer"], [*hooks.all, bar], run)
    schedule.check_trainer(trainer)
    if config.order_ablation:
        check_one_process(trainer)
    if config.refit:
        check_refit(config, dataset.splits, task, trainer)
    resumed = hooks.resumed
    if resumed is not None:
        if schedule.changes:
            schedule.advance(task, epochs_started(resumed))  # apply structure changes that the checkpoint already has
        batches.trainer = trainer  # tells the batches how many devices share them
        check_resumable(plain, task, batches)
        for setting in settings_left_out(plain, resumed):
            show_note(f"checkpoint={resumed}: its run had {setting}, which this run leaves out; add it to keep it")
    logger, model_warnings = None, []
    if trainer.is_global_zero:
        model_warnings = _model_warnings(task, config.export, splits, config.runtime.on_padding)
        data_warnings = [*data_warnings, *model_warnings]
        logger = _open_run(plain, dataset, run, task, trainer, threads)
    trainer.loggers = [logger.curves] if logger is not None else []
    failed = True
    try:
        shown = bar.shown() if config.trainer["enable_progress_bar"] else nullcontext()
        timeout_s = config.runtime.rank_timeout
        # Lightning builds the strategy from a name, which takes no arguments, so the timeout is set here.
        if hasattr(trainer.strategy, "_timeout"):
            trainer.strategy._timeout = timedelta(seconds=timeout_s)
        lost = explained_loss(trainer.global_rank, timeout_s, hooks.resume_advice)
        full = explained_memory(task, batches)
        with launching_ranks(run), deferred_signals(), shown, lost, full, using_threads(threads):
            trainer.fit(task, datamodule=batches, ckpt_path=resumed, weights_only=True)
        if not trainer.is_global_zero:
            return None
        if check is not None:
            console.print(f"debug=nan: {check.summary()}")
        if config.trainer["fast_dev_run"]:
            failed = False
            return FastDevRunResult(str(run))
        trained_s = time.perf_counter() - started
        if resumed is not None:
            take_last(hooks.best, Path(resumed), trainer.global_step)
        # Without validation there is no best checkpoint, but a last checkpoint.
        checkpoint = hooks.best.best_model_path or hooks.last.best_model_path or resumed
        if not checkpoint:
            raise InputError("trainer", "the limits leave no epoch to train", "raise max_epochs, max_steps or max_time")
        if resumed is not None and not hooks.last_path.is_file():  # all epochs were trained in another run folder
            write_checkpoint(hooks.last_path, resumed.read_bytes())
            if checkpoint == resumed:
                checkpoint = hooks.last_path  # a file of another run stays as it is
        # Load the checkpoint from its file, so that the evaluated and exported model is the model that others load.
        history = hooks.record.history
        task = load_task(checkpoint, trust=_trusted_packages(plain)).to(trainer.strategy.root_device)
        weighs = fit_to_validation(task, dataset.splits["validation"], Path(checkpoint))
        shuffled = shuffled_contender(config, dataset, run, _trusted_packages(plain)) if config.order_ablation else None
        earlier, record = None, None
        if config.refit:
            # What validation says about the model is only true of the model that was not trained on it.
            others = [split for split in batches.splits if split != list(dataset.splits)[-1]]
            earlier = {split: split_outputs(task, batches, split) for split in others}
            chosen = Chosen(Path(checkpoint), task.trained_steps)
            task, record = refit_model(config, dataset, batches, trainer, chosen, run, _trusted_packages(plain))
        result, bundle, parity = evaluate_and_export(
            *(config, plain, dataset, batches, task, run, logger, history, data_warnings, shuffled),
            earlier=earlier,
            refit=record,
            # Training changes the error, so the result holds the error of the trained model.
            padding_error=trained_padding_error(task, _shortest(splits)) if model_warnings else None,
            weighs_heads=weighs,
            prints_verdict=prints_verdict,
        )
        failed = False
    except MisconfigurationException as error:  # a callback that needs a logger, for example
        raise trainer_error(error) from None
    except Terminated as end:
        if is_launched_rank(trainer):
            end.code = 0  # with another exit code, the launcher would kill rank 0, which may still be writing
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
        padding_error=result.padding_error,
        train_s=round(trained_s, 2),
        total_s=round(time.perf_counter() - started, 2),
    )


def _model_warnings(
    task: SequenceTask, export: bool, splits: Mapping[str, Split], on_padding: OnPadding = "stop"
) -> list[str]:
    """Return and print the warnings about a network of another package (see `check_foreign_network`)."""
    model_warnings = check_foreign_network(task, export, _shortest(splits), on_padding=on_padding)
    for line in model_warnings:
        console.print(line, style="yellow", soft_wrap=True)
    return model_warnings


def _shortest(splits: Mapping[str, Split]) -> int:
    """Return the number of tokens of the shortest sequence."""
    return min(int(split.sequences.lengths.min()) for split in splits.values() if len(split.sequences))


def _open_run(
    config: Config, dataset: Dataset, run: Path, task: SequenceTask, trainer: pl.Trainer, threads: int
) -> RunLogger | None:
    """Open the logger, clear the folder and print the size of the model. Returns the logger."""
    logger = open_logger(config["logger"], run, config)
    clear_run_folder(config, dataset, run)
    weights = sum(weight.numel() for weight in task.parameters())
    if task.model_text:
        console.print(f"model: {task.model_text}", soft_wrap=True)
    console.print(f"model: {weights:,} weights on {trainer.strategy.root_device}, threads: {threads}")
    return logger


def clear_run_folder(config: Config, dataset: Dataset, run: Path) -> None:
    """Delete stale outputs of an earlier run, and write the files that are known before training."""
    resumed = is_resumed(run, config["checkpoint"])
    stale = RESULTS if resumed else run_outputs(run)
    for name in ("quarantine.jsonl", ABLATION, *stale):
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink(missing_ok=True)
    write_output(run / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if (dataset.folder / "quarantine.jsonl").is_file():
        shutil.copy(dataset.folder / "quarantine.jsonl", run)


def _trusted_packages(config: Config) -> set[str]:
    """Return the packages in the user's config. The packages are trusted, because their code has run already."""
    return {package_of(target) for part in ("model", "loss") for _, target in targets(config[part], part)}
