"""The training recipe: a prepared dataset and a config → a run folder."""

from __future__ import annotations

import json
import logging
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.loggers import Logger

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.data.dataset import Dataset
from seqclf.errors import InputError
from seqclf.learning import callbacks
from seqclf.learning.classify import classify
from seqclf.learning.loggers import finish, log_verdict, make_logger
from seqclf.learning.scores import MAIN, scores
from seqclf.learning.task import SequenceTask, load_task, read_checkpoint
from seqclf.packing import write_bundle
from seqclf.reporting.console import console, show_epoch, show_scores


def train(config: dict[str, Any], dataset: Dataset, run: Path) -> dict[str, Any]:
    """Train, score the best epoch on every split, export it; fills `run` and returns the summary."""
    started = time.perf_counter()
    _set_up(config)
    batches = SequenceDataModule(dataset.splits, seed=config["seed"], **config["batching"])
    task = SequenceTask(
        dataset.description(), config["model"], config["loss"], config["optimizer"], config["monitor"], config["seed"]
    )
    if config["checkpoint"] is not None:
        _check_resumable(config, task)
    record = callbacks.EpochRecord(run / "metrics.csv", show_epoch)
    best, last = callbacks.checkpoints(run / "checkpoints")
    trainer = _trainer(config["trainer"], [*_stopping(config), *_progress(config), record, best, last], run)
    logger = make_logger(config["logger"], run, config) if trainer.is_global_zero else None
    trainer.loggers = [logger] if logger is not None else []
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if (dataset.folder / "quarantine.jsonl").is_file():
        shutil.copy(dataset.folder / "quarantine.jsonl", run)
    count = sum(weight.numel() for weight in task.parameters())
    console.print(f"model: {count:,} weights on {trainer.strategy.root_device}, {torch.get_num_threads()} threads")
    try:
        trainer.fit(task, datamodule=batches, ckpt_path=config["checkpoint"], weights_only=True)
        if not trainer.is_global_zero:
            return {}
        if config["trainer"]["fast_dev_run"]:
            return {"run": str(run), "fast_dev_run": True}
        trained = time.perf_counter() - started
        task = load_task(best.best_model_path).to(trainer.strategy.root_device)
        summary = _score_and_export(config, dataset, batches, task, run, logger)
    except SystemExit:  # how Lightning ends an interrupted fit
        console.print(f"interrupted; go on with checkpoint={run / 'checkpoints' / 'last.ckpt'}", soft_wrap=True)
        raise
    finally:
        finish(logger)
    total = time.perf_counter() - started
    epochs = len(record.history)
    return {"run": str(run), "epochs": epochs, **summary, "train_s": round(trained, 2), "total_s": round(total, 2)}


def _set_up(config: dict[str, Any]) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for noise in (
        ".*does not have many workers.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*Checkpoint directory.*",
        ".*The number of training batches.*",
        ".*dirpath has changed.*",
    ):
        warnings.filterwarnings("ignore", noise)
    if config["runtime"]["threads"]:
        torch.set_num_threads(config["runtime"]["threads"])
    torch.set_flush_denormal(config["runtime"]["flush_denormal"])
    pl.seed_everything(config["seed"], workers=True, verbose=False)


def _trainer(settings: dict[str, Any], hooks: list[Callback], run: Path) -> pl.Trainer:
    try:
        return pl.Trainer(
            **settings,
            callbacks=hooks,
            logger=False,
            default_root_dir=run,
            use_distributed_sampler=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise InputError(f"trainer: {str(error).strip().splitlines()[0]}") from None


def _stopping(config: dict[str, Any]) -> list[Callback]:
    return [callbacks.early_stopping(config["patience"])] if config["patience"] is not None else []


def _progress(config: dict[str, Any]) -> list[Callback]:
    if not (config["trainer"]["enable_progress_bar"] and console.is_terminal):
        config["trainer"]["enable_progress_bar"] = False
        return []
    return [RichProgressBar(refresh_rate=10, leave=False)]


def _check_resumable(config: dict[str, Any], task: SequenceTask) -> None:
    """Raise unless the checkpoint continues this very task and has epochs left."""
    path = config["checkpoint"]
    state = read_checkpoint(path)
    for part, key in (("dataset", "data"), ("model", "model")):
        if state["hyper_parameters"][part] != task.hparams[part]:
            raise InputError(f"checkpoint={path}: was trained with another {key}; give the same {key} keys as its run")
    epochs = config["trainer"]["max_epochs"]
    if epochs is not None and 0 <= epochs <= state["epoch"] + 1:
        raise InputError(
            f"checkpoint={path}: has trained {state['epoch'] + 1} epochs already; "
            f"raise trainer.max_epochs (now {epochs})"
        )


def _score_and_export(
    config: dict[str, Any],
    dataset: Dataset,
    batches: SequenceDataModule,
    task: SequenceTask,
    run: Path,
    logger: Logger | None,
) -> dict[str, Any]:
    """Score a task on every split, export it, and tell: terminal, `metrics.json`, logger. Returns the summary."""
    metrics = {}
    for split in dataset.splits:
        labels, probabilities = classify(task, batches.evaluation_loader(split))
        metrics[split] = scores(labels, probabilities, dataset.classes, dataset.positive)
    text = json.dumps({**metrics, "data": dataset.report}, indent=1, ensure_ascii=False)
    (run / "metrics.json").write_text(text + "\n", encoding="utf-8")
    show_scores(metrics)
    bundle = run / "bundle" if config["export"] else None
    proof = None
    if bundle is not None:
        proof = write_bundle(task, bundle, metrics)
        console.print(f"bundle: {bundle}, differs from PyTorch by at most {proof['max_error']:.1e}", soft_wrap=True)
    log_verdict(logger, metrics, dataset.classes, (labels, probabilities.argmax(axis=1)), bundle, config["logger"])
    return {
        "bundle": bundle and str(bundle),
        "split": split,
        **{name: round(metrics[split][name], 6) for name in MAIN},
        "parity": proof and proof["max_error"],
    }
