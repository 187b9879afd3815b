"""Shared by the workers of all frameworks: the sequences, the sizes of the model, and the protocol with peers.py.

A worker trains one epoch for each line on standard input, and answers with its seconds and loss. Needs numpy alone, as
Chainer's environment has little else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

VOCABULARY = 1000  # tokens, 0 for padding among them
CLASSES = 2
EMBEDDING = 64
HIDDEN = 128
BATCH = 32
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.01
CLIP = 1.0  # norm of the gradients


class Workload(NamedTuple):
    """Token sequences (T,) and labels (N,). `epochs`: the rows (B,) of each step, as seqclf's command batches them."""

    sequences: list[np.ndarray]
    labels: np.ndarray
    epochs: list[list[np.ndarray]]

    @property
    def max_length(self) -> int:
        return max(map(len, self.sequences))


class Epoch(NamedTuple):
    """Seconds from loading the first batch to the end of the last step, and the mean loss.

    `cpu`: seconds of CPU of the process in that time, None where the framework does not say. Other programs on the
    machine change these less than the seconds.
    """

    seconds: float
    loss: float
    cpu: float | None = None


EpochTrainer = Callable[[], Epoch]


def read_workload(path: str) -> Workload:
    """Read the sequences and batches that peers.py wrote."""
    with np.load(path) as arrays:
        sequences = np.split(arrays["tokens"], arrays["offsets"][1:-1])
        count = sum(name.startswith("rows") for name in arrays.files)
        epochs = [np.split(arrays[f"rows{epoch}"], arrays[f"steps{epoch}"][1:-1]) for epoch in range(count)]
        return Workload(sequences, arrays["labels"], epochs)


def serve(modes: dict[str, Callable[[Workload], EpochTrainer]]) -> None:
    """Train an epoch for each line on standard input, and answer each with its `Epoch`.

    The command line names the mode and the workload's file.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print to standard output too, which must not reach the answers
    train_epoch = modes[sys.argv[1]](read_workload(sys.argv[2]))
    for _ in sys.stdin:
        print(json.dumps(train_epoch()), file=answers, flush=True)
