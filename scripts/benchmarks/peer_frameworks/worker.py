"""What all contenders share: the sequences, the sizes of the model, and how a worker is told to train an epoch.

Needs numpy alone, as Chainer's environment has little else.
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
CLIP = 1.0


class Workload(NamedTuple):
    """`epochs`: the batches that seqclf's command trains on, the rows of each update, epoch by epoch."""

    sequences: list[np.ndarray]
    labels: np.ndarray
    epochs: list[list[np.ndarray]]

    @property
    def longest(self) -> int:
        return max(map(len, self.sequences))


class Epoch(NamedTuple):
    """Seconds from the first update's loading to the end of the last one, and the mean loss."""

    seconds: float
    loss: float


Trainer = Callable[[], Epoch]


def read_workload(path: str) -> Workload:
    with np.load(path) as stored:
        sequences = np.split(stored["tokens"], stored["offsets"][1:-1])
        count = sum(name.startswith("rows") for name in stored.files)
        epochs = [np.split(stored[f"rows{epoch}"], stored[f"steps{epoch}"][1:-1]) for epoch in range(count)]
        return Workload(sequences, stored["labels"], epochs)


def serve(modes: dict[str, Callable[[Workload], Trainer]]) -> None:
    """Train an epoch for each line on standard input, and answer each with its `Epoch`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print is no answer
    train = modes[sys.argv[1]](read_workload(sys.argv[2]))
    for _ in sys.stdin:
        print(json.dumps(train()), file=answers, flush=True)
