"""The training recipe: a prepared dataset and a config → a run folder."""

from __future__ import annotations

import json
import logging
import shutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import yaml
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.instantiate import package_of
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError
from seqclf.evaluation.decision import choose_decision, fit_temperature, parse_rule, uses_holdout
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.evaluation.results import Outcome, SplitOutputs, calibration, evaluate_split
from seqclf.export_bundle import write_bundle
from seqclf.reporting.console import console, show_decision, show_epoch, show_scores
from seqclf.reporting.run.content import run_mistakes, run_report
from seqclf.reporting.run.page import write_report
from seqclf.survey.predictability import score_baseline
from seqclf.system.atomic_files import write_output
from seqclf.system.run_lock import is_resumed, run_outputs
from seqclf.system.signals import Terminated, deferred_signals
from seqclf.training import callbacks
from seqclf.training.checkpoint_io import AtomicCheckpointIO, write_checkpoint
from seqclf.training.epoch_record import EpochRecord
from seqclf.training.holdout import hold_out
from seqclf.training.inference import predict_logits
from seqclf.training.loggers import finish, log_verdict, make_logger
from seqclf.training.module import SequenceTask, load_task
from seqclf.training.resume import check_resumable
from seqclf.training.stop_on_signal import StopOnSignal
from seqclf.training.wandb_summary import RunSummary

THRESHOLD = "threshold"  # the validation rows kept apart for it


def train(config: dict[str, Any], dataset: Dataset, run: Path, warned: Sequence[str] = ()) -> dict[str, Any] | None:
    """Train, score the best epoch on every split, export it; fills `run` and returns the summary (on rank 0).

    `warned`: what stood out in the data, for the report.
    """
    started = time.perf_counter()
    _set_up(config)
    rule, _ = parse_rule(config["decision"], dataset.classes, dataset.positive)
    dataset, apart = hold_out(dataset, config["decision"], rule)
    splits = dataset.splits if apart is None else {**dataset.splits, THRESHOLD: apart}
    batches = SequenceDataModule(splits, seed=config["seed"], **config["batching"])
    task = SequenceTask(
        dataset.description(), config["model"], config["loss"], config["optimizer"], config["monitor"], config["seed"]
    )
    for name, vectors in dataset.vectors().items():
        task.model.load_vectors(name, vectors)
    task.make_optimizer(steps=1)  # settings that cannot be are told before anything is written
    record = EpochRecord(run / "metrics.csv", show_epoch)
    folder, resumed = run / "checkpoints", config["checkpoint"] and Path(config["checkpoint"])
    best, last, *inside = callbacks.checkpoints(folder, config["checkpoint_every"], resumed)
    hooks = [*_stopping(config), record, best, last, *inside, StopOnSignal(folder / "last.ckpt")]
    trainer = _trainer(config["trainer"], hooks, run)
    if config["checkpoint"] is not None:
        batches.trainer = trainer  # whose devices share out the batches
        check_resumable(config, task, batches)
    logger = None
    if trainer.is_global_zero:
        logger = make_logger(config["logger"], run, config)
        _open_run(config, dataset, run)
        count = sum(weight.numel() for weight in task.parameters())
        console.print(f"model: {count:,} weights on {trainer.strategy.root_device}, {torch.get_num_threads()} threads")
    trainer.loggers = [logger] if logger is not None else []
    try:
        with deferred_signals():
            trainer.fit(task, datamodule=batches, ckpt_path=resumed, weights_only=True)
        if not trainer.is_global_zero:
            return None
        if config["trainer"]["fast_dev_run"]:
            return {"run": str(run), "fast_dev_run": True}
        trained = time.perf_counter() - started
        chosen = best.best_model_path or last.best_model_path or resumed  # the last, if no epoch was validated
        if not chosen:
            raise InputError("trainer: the limits leave no epoch to train; raise max_epochs, max_steps or max_time")
        if resumed and not (folder / "last.ckpt").is_file():  # all its epochs were trained elsewhere
            write_checkpoint(folder / "last.ckpt", resumed.read_bytes())
        task = load_task(chosen, trust=_packages(config)).to(trainer.strategy.root_device)
        summary = _score_and_export(config, dataset, batches, task, run, logger, record, warned)
    except Terminated as end:
        if _is_launched(trainer):
            end.code = 0  # where a rank fails, the launcher kills the first one, which may still be writing
        end.advice = _how_to_go_on(folder / "last.ckpt", resumed)
        raise
    finally:
        finish(logger)
    total = time.perf_counter() - started
    epochs = len(record.history)
    return {"run": str(run), "epochs": epochs, **summary, "train_s": round(trained, 2), "total_s": round(total, 2)}


def _is_launched(trainer: pl.Trainer) -> bool:
    """Whether this process is a rank that Lightning's launcher started, which watches its exit code."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return not trainer.is_global_zero and isinstance(environment, LightningEnvironment)


def _how_to_go_on(last: Path, resumed: Path | None) -> str:
    """The advice to somebody who stopped a run; it names only a file that exists."""
    left = next((path for path in (last, resumed) if path is not None and path.is_file()), None)
    return "no step was trained; start again" if left is None else f"go on with checkpoint={left}"


def _packages(config: dict[str, Any]) -> set[str]:
    """The packages that the user's own config names, whose code has run already."""
    return {package_of(config[part]["_target_"]) for part in ("model", "loss")}


def _open_run(config: dict[str, Any], dataset: Dataset, run: Path) -> None:
    """Delete stale outputs of an earlier run, and write what is known before training."""
    resumed = is_resumed(run, config["checkpoint"])
    for name in ["quarantine.jsonl", *(("metrics.json", "report.html", "bundle") if resumed else run_outputs(run))]:
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink(missing_ok=True)
    write_output(run / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if (dataset.folder / "quarantine.jsonl").is_file():
        shutil.copy(dataset.folder / "quarantine.jsonl", run)


def _set_up(config: dict[str, Any]) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for noise in (
        ".*does not have many workers.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*Checkpoint directory.*",
        ".*The number of training batches.*",
        ".*dirpath has changed.*",
        ".*could not find the monitored key.*",
        ".*It is recommended to use `sync_dist=True`.*",  # the tally is synchronised already
    ):
        warnings.filterwarnings("ignore", noise)
    if config["runtime"]["threads"]:
        torch.set_num_threads(config["runtime"]["threads"])
    torch.set_flush_denormal(config["runtime"]["flush_denormal"])
    pl.seed_everything(config["seed"], workers=True, verbose=False)


def _trainer(settings: dict[str, Any], hooks: list[Callback], run: Path) -> pl.Trainer:
    bar = settings["enable_progress_bar"] and console.is_terminal
    fixed = {
        "callbacks": [*hooks, RichProgressBar(refresh_rate=10, leave=False)] if bar else hooks,
        "enable_progress_bar": bar,
        "logger": False,
        "default_root_dir": run,
        "plugins": [AtomicCheckpointIO()],
        "enable_model_summary": False,
    }
    try:
        trainer = pl.Trainer(**{**settings, **fixed})
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise InputError(f"trainer: {str(error).strip().splitlines()[0]}") from None
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise InputError(
            f"trainer.strategy={settings['strategy']}: its processes are copies of this one, which do not give back "
            "what they trained; use trainer.strategy=ddp"
        )
    return trainer


def _stopping(config: dict[str, Any]) -> list[Callback]:
    return [] if config["patience"] is None else [callbacks.early_stopping(config["patience"])]


def _baseline(config: dict[str, Any], dataset: Dataset, split: str) -> dict[str, Any] | None:
    """What the order-blind model scores on a split, unless it was not asked for or the data is too large."""
    steps = sum(counts["steps"] for counts in dataset.report.values())
    if not config["baseline"]:
        return None
    if steps > config["baseline_limit"]:
        console.print(
            f"no order-blind baseline: {steps:,} steps are more than baseline_limit={config['baseline_limit']:,}"
        )
        return None
    found = score_baseline(dataset)
    return {"model": found["model"], "split": split, **found["models"][found["model"]][split]}


def _scored(task: SequenceTask, batches: SequenceDataModule, split: str) -> SplitOutputs:
    data = batches.splits[split]
    if not len(data.sequences):  # too few validation rows to keep one apart
        classes = len(task.hparams["dataset"]["classes"])
        return SplitOutputs(
            np.empty((0, classes), np.float32), data.labels, data.lengths_before_truncation, np.empty(0, bool)
        )
    labels, logits = predict_logits(task, batches.evaluation_loader(split))
    return SplitOutputs(
        logits, labels, data.lengths_before_truncation, data.lengths_before_truncation > data.sequences.lengths
    )


def _outcome(
    config: dict[str, Any], dataset: Dataset, batches: SequenceDataModule, task: SequenceTask, epochs: int
) -> tuple[Outcome, SplitOutputs]:
    """Score a task on every split and choose how it decides; the outcome and the rows that chose it."""
    scored = {split: _scored(task, batches, split) for split in dataset.splits}
    held = _scored(task, batches, THRESHOLD) if THRESHOLD in batches.splits else scored["validation"]
    decision = choose_decision(config["decision"], held.logits, held.labels, dataset.classes, dataset.positive)
    metrics = {
        split: evaluate_split(own, dataset.classes, dataset.positive, decision, intervals=split != "train")
        for split, own in scored.items()
    }
    metrics["validation"]["used_for"] = _used_for(config["decision"], decision.rule, epochs)
    return Outcome(scored, decision, metrics), held


def _used_for(settings: dict[str, Any], rule: str, epochs: int) -> list[str]:
    """What the rows of validation that are scored have chosen, so that they flatter the model."""
    used = ["epoch"] if epochs > 1 else []
    if not uses_holdout(settings, rule):
        used += ["threshold"] if rule != "argmax" else []
        used += ["temperature"] if settings["calibrate"] else []
    return used


def _score_and_export(
    config: dict[str, Any],
    dataset: Dataset,
    batches: SequenceDataModule,
    task: SequenceTask,
    run: Path,
    logger: Logger | None,
    record: EpochRecord,
    warned: Sequence[str],
) -> dict[str, Any]:
    """Score a task, export it, and tell: terminal, `metrics.json`, report, logger. Returns the summary."""
    outcome, held = _outcome(config, dataset, batches, task, epochs=len(record.history))
    split, metrics = outcome.split, outcome.metrics
    baseline = _baseline(config, dataset, split)
    temperature = fit_temperature(held.logits, held.labels)
    written = {
        **metrics,
        **({"baseline": baseline} if baseline is not None else {}),
        "decision": outcome.decision.to_dict(),
        "calibration": calibration(outcome.scored, temperature, config["decision"]["calibrate"]),
        "data": dataset.report,
        "holdout": {"rows": len(batches.splits[THRESHOLD].labels) if THRESHOLD in batches.splits else 0},
        "leaks": dataset.leaks,
        "step": task.step,
    }
    write_output(run / "metrics.json", json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    show_scores(metrics, baseline)
    show_decision(outcome.decision, metrics[split], split)
    bundle = run / "bundle" if config["export"] else None
    proof = None
    if bundle is not None:
        proof = write_bundle(task, bundle, written)
        console.print(f"bundle: {bundle}, differs from PyTorch by at most {proof['max_error']:.1e}", soft_wrap=True)
    mistakes = run_mistakes(dataset, outcome)
    try:
        page = run_report(config, dataset, outcome, written, record.history, warned, mistakes)
        write_report(page, run / "report.html")
    except Exception as error:  # a page must never cost a trained model
        warnings.warn(f"report.html: {error!r}; the run goes on without it", stacklevel=2)
    log_verdict(logger, RunSummary(config["data"]["name"], dataset, outcome, mistakes, bundle), config["logger"])
    return {
        "bundle": bundle and str(bundle),
        "split": split,
        "independent": not metrics[split].get("used_for"),
        **{name: round(metrics[split][name], 6) for name in MAIN_METRICS},
        "parity": proof and proof["max_error"],
    }
