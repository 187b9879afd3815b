"""Chainer 7, the first framework with define-by-run graphs. It needs a separate environment."""

from __future__ import annotations

import time

import numpy as np

for _name in ("bool", "int", "float", "complex", "object", "str"):  # aliases that numpy has removed and Chainer reads
    if _name not in np.__dict__:
        setattr(np, _name, getattr(__import__("builtins"), _name))

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402
import worker  # noqa: E402
from worker import Epoch, EpochTrainer, Workload, serve  # noqa: E402


class Classifier(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embedding = L.EmbedID(worker.VOCABULARY, worker.EMBEDDING)
            self.lstm = L.NStepLSTM(1, worker.EMBEDDING, worker.HIDDEN, 0.0)
            self.norm = L.LayerNormalization(worker.HIDDEN)
            self.output = L.Linear(worker.HIDDEN, worker.CLASSES)

    def forward(self, sequences: list[np.ndarray]) -> chainer.Variable:
        boundaries = np.cumsum([len(sequence) for sequence in sequences])[:-1]
        embedded = F.split_axis(self.embedding(np.concatenate(sequences)), boundaries, 0)
        last, _, _ = self.lstm(None, None, list(embedded))
        return self.output(self.norm(last[0]))


def bucketed(workload: Workload) -> EpochTrainer:
    np.random.seed(0)
    sequences = [sequence.astype(np.int32) for sequence in workload.sequences]
    labels = workload.labels.astype(np.int32)
    model = Classifier()
    # Chainer does not multiply the weight decay by the learning rate, PyTorch does.
    optimizer = chainer.optimizers.AdamW(
        worker.LEARNING_RATE, weight_decay_rate=worker.LEARNING_RATE * worker.WEIGHT_DECAY
    ).setup(model)
    epochs = iter(workload.epochs)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(worker.CLIP))

    def epoch() -> Epoch:
        losses = []
        started = time.perf_counter()
        for rows in next(epochs):
            model.cleargrads()
            loss = F.softmax_cross_entropy(model([sequences[row] for row in rows]), labels[rows])
            loss.backward()
            optimizer.update()
            losses.append(float(loss.array))
        return Epoch(time.perf_counter() - started, float(np.mean(losses)))

    return epoch


if __name__ == "__main__":
    serve({"bucketed": bucketed})
