"""Ablation of the order (order_ablation=true): the network of a run, trained again on shuffled tokens.

The second model sees the same tokens in each row, and has the same config. What the network of the run adds to it comes
from the order of the tokens alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.shuffled import shuffle_split
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.ladder import Contender, most_probable
from seqclf.report.model_card import network_kind
from seqclf.runs.evaluate import set_halting
from seqclf.runs.head_weights import set_by_validation
from seqclf.runs.hooks import Hooks
from seqclf.runs.inference import predict_logits
from seqclf.runs.process_settings import training_threads, using_threads
from seqclf.runs.ranks import launching_ranks
from seqclf.runs.trainer import make_task, make_trainer
from seqclf.system import progress
from seqclf.system.signals import deferred_signals
from seqclf.training.callbacks import TrainingProgress
from seqclf.training.module import load_task
from seqclf.training.options import TrainConfig
from seqclf.training.step_memory import explained_memory
from seqclf.training.structure_schedule import StructureSchedule

ABLATION = "order_ablation"  # folder inside the run folder, removed at the end


def check_one_process(trainer: pl.Trainer) -> None:
    """Raise InputError if several ranks train. The second model would need ranks of its own."""
    if trainer.world_size > 1:
        raise InputError("order_ablation=true", "trains a second model in one process", "set trainer.devices=1")


def shuffled_contender(config: TrainConfig, dataset: Dataset, run: Path, trust: Collection[str]) -> Contender | None:
    """Train the network of a config on shuffled tokens, and return its predictions of the last split.

    `trust`: packages whose code the checkpoint may name (see `load_task`). An error ends in a printed note and None,
    because it must not cost the model that is trained already. A signal ends the run, as in the first training.
    """
    folder = run / ABLATION
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    console.print("order_ablation=true: trains the same network on shuffled tokens")
    try:
        with progress.stage("training on shuffled tokens"):
            return _train(config, dataset, folder, trust)
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else repr(error)
        show_note(f"order_ablation=true: {' '.join(reason.split())}; the run goes on without the shuffled tokens")
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _train(config: TrainConfig, dataset: Dataset, folder: Path, trust: Collection[str]) -> Contender:
    # Callbacks of the user may write files, which belong to the first training.
    trainer_settings = {**config.trainer, "callbacks": None, "profiler": None}
    config = config.model_copy(update={"trainer": trainer_settings, "checkpoint": None})
    with progress.stage("shuffling the tokens"):
        splits = {
            name: shuffle_split(split, folder / "data" / name, config.seed + number)
            for number, (name, split) in enumerate(dataset.splits.items())
        }
    shuffled, plain = replace(dataset, splits=splits), config.model_dump()
    batches = SequenceDataModule(splits, config.batching, seed=config.seed)
    task = make_task(plain, shuffled)
    schedule = StructureSchedule(plain["structure"])
    hooks = Hooks.build(config, folder, None, schedule, splits, show=lambda *_: None)
    bar = TrainingProgress()
    trainer = make_trainer(plain["trainer"], [*hooks.all, bar], folder)
    shown = bar.shown() if config.trainer["enable_progress_bar"] else nullcontext()
    threads = using_threads(training_threads(config.runtime, task.model, batches))
    with launching_ranks(folder), deferred_signals(), shown, explained_memory(task, batches), threads:
        trainer.fit(task, datamodule=batches)
    checkpoint = hooks.best.best_model_path or hooks.last.best_model_path
    task = load_task(checkpoint, trust=set(trust)).to(trainer.strategy.root_device)
    set_by_validation(task, splits["validation"])
    set_halting(task, batches, shuffled)
    last = list(splits)[-1]
    with progress.stage(f"evaluating on shuffled {last}", total=len(splits[last].labels), unit="rows"):
        _, logits = predict_logits(task, batches.evaluation_loader(last))
    return Contender(network_kind(config.model), most_probable(softmax(logits)))
