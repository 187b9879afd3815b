"""`python -m seqclf.train` as its users run it, paused before each epoch until peers.py asks for it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import worker
from worker import Epoch, Workload, read_workload

import seqclf.training.training_log as epoch_record
from seqclf.batching.plan import padding_efficiency
from seqclf.config.command import run


def pause_at_epochs(workload: Workload, whole: bool) -> None:
    """Wait for a line on standard input before each epoch, and answer it with the figures of the run's record.

    `whole`: time the epoch with its validation and checkpoints, until the next one would start.
    """
    lengths = np.array([len(sequence) for sequence in workload.sequences])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the command prints to standard output too, which must not reach the answers
    record = epoch_record.EpochRecord
    on_start, on_step, on_end = record.on_train_epoch_start, record.on_train_batch_end, record.on_train_epoch_end
    clock = {"started": 0.0, "cpu_started": 0.0, "cpu_ended": 0.0}

    def answer(seconds: float, loss: float, cpu_ended: float) -> None:
        print(json.dumps(Epoch(seconds, loss, cpu_ended - clock["cpu_started"])), file=answers, flush=True)

    def paused_start(self: epoch_record.EpochRecord, *arguments: Any) -> None:
        if whole and self.history:
            answer(time.perf_counter() - clock["started"], self.history[-1]["train/loss"], time.process_time())
        if not sys.stdin.readline():
            sys.exit("nobody asks for another epoch")
        clock["started"], clock["cpu_started"] = time.perf_counter(), time.process_time()
        on_start(self, *arguments)

    def timed_step(self: epoch_record.EpochRecord, *arguments: Any) -> None:
        on_step(self, *arguments)
        clock["cpu_ended"] = time.process_time()

    def answered_end(self: epoch_record.EpochRecord, *arguments: Any) -> None:
        on_end(self, *arguments)
        row = self.history[-1]
        planned = padding_efficiency(lengths, workload.epochs[row["epoch"]])
        assert abs(row["padding_efficiency"] - planned) < 1e-4, "the batches are not those of the other workers"
        if not whole:
            answer(lengths.sum() / row["tokens_per_s"], row["train/loss"], clock["cpu_ended"])

    record.on_train_epoch_start = paused_start  # type: ignore[method-assign]
    record.on_train_batch_end = timed_step  # type: ignore[method-assign]
    record.on_train_epoch_end = answered_end  # type: ignore[method-assign]


def overrides(folder: Path, epochs: int) -> dict[str, Any]:
    """Return the config of the same model, optimizer and batches as in the other frameworks."""
    return {
        "hydra.run.dir": folder / f"run-{os.getpid()}",
        "data": "files",
        "data.train": folder / "train.parquet",
        "data.validation": folder / "validation.parquet",
        "data.label": "label",
        "data.cache_dir": folder / f"cache-{os.getpid()}",
        "model": "lstm",
        "model.embedding_size": worker.EMBEDDING,
        "model.hidden_size": worker.HIDDEN,
        "model.bidirectional": "false",
        "model.pooling": "last",
        "model.dropout": 0,
        "model.token_dropout": 0,
        "optimizer.lr": worker.LEARNING_RATE,
        "optimizer.weight_decay": worker.WEIGHT_DECAY,
        "optimizer.schedule.warmup": 0,
        "optimizer.schedule.decay": "none",
        "trainer.accelerator": "cpu",
        "trainer.gradient_clip_val": worker.CLIP,
        "trainer.max_epochs": epochs,
        "batching.max_sequences": worker.BATCH,
        "patience": "null",
    }


if __name__ == "__main__":
    whole, path = sys.argv[1] == "whole", Path(sys.argv[2])
    workload = read_workload(str(path))
    os.environ["WANDB_MODE"] = "offline"
    settings = overrides(path.parent, len(workload.epochs) + whole)  # one more, whose start ends the last
    sys.argv = ["seqclf.train", *(f"{key}={value}" for key, value in settings.items())]
    pause_at_epochs(workload, whole)
    run("train")
