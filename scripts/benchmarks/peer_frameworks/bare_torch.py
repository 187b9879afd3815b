"""Plain PyTorch training loops, as written by hand."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import worker
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from worker import Epoch, EpochTrainer, Workload, serve


class Classifier(nn.Module):
    """An LSTM classifier on the last token's state.

    `packed`: pack the sequences, as tutorials do. Without, padding is computed too and the last states are picked,
    which is faster.
    """

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self.packed = packed
        self.embedding = nn.Embedding(worker.VOCABULARY, worker.EMBEDDING)
        self.lstm = nn.LSTM(worker.EMBEDDING, worker.HIDDEN, batch_first=True)
        self.norm = nn.LayerNorm(worker.HIDDEN)
        self.output = nn.Linear(worker.HIDDEN, worker.CLASSES)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        if self.packed:
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            last = self.lstm(packed)[1][0][0]
        else:
            last = self.lstm(embedded)[0][torch.arange(len(lengths)), lengths - 1]
        return self.output(self.norm(last))


class Loop:
    """A training loop over batches of rows.

    `flush_denormal`: PyTorch's switch, off by default. Gradients through hundreds of tokens become denormal numbers,
    which CPUs compute many times slower. `length`: pad every batch to this length. `fused`: use the fused AdamW.
    """

    def __init__(self, workload: Workload, flush_denormal: bool, length: int | None = None, fused: bool = False):
        torch.set_flush_denormal(flush_denormal)
        torch.manual_seed(0)
        self.sequences = [torch.from_numpy(sequence) for sequence in workload.sequences]
        self.lengths = torch.tensor([len(sequence) for sequence in workload.sequences])
        self.labels = torch.from_numpy(workload.labels)
        self.length = length
        self.best = float("inf")  # sum of validation losses
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=worker.LEARNING_RATE, weight_decay=worker.WEIGHT_DECAY, fused=fused
        )

    def epoch(self, batches: Iterable[np.ndarray]) -> Epoch:
        losses = []
        started, cpu_started = time.perf_counter(), time.process_time()
        for rows in batches:
            self.optimizer.zero_grad()
            loss = self.loss(rows)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), worker.CLIP)
            self.optimizer.step()
            losses.append(loss.detach())
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        return Epoch(seconds, float(torch.stack(losses).mean()), cpu)

    def loss(self, rows: np.ndarray) -> Tensor:
        """Return the mean loss of a batch."""
        tokens = pad_sequence([self.sequences[row] for row in rows], batch_first=True)
        if self.length is not None:
            tokens = nn.functional.pad(tokens, (0, self.length - tokens.shape[1]))
        indices = torch.from_numpy(rows)
        return nn.functional.cross_entropy(self.model(tokens, self.lengths[indices]), self.labels[indices])

    def whole_epoch(self, batches: Iterable[np.ndarray], validation: np.ndarray, folder: Path) -> Epoch:
        """Train on `batches`, validate on batches of the rows `validation`, and write the latest and the best state."""
        started, cpu_started = time.perf_counter(), time.process_time()
        trained = self.epoch(batches)
        self.model.eval()
        with torch.inference_mode():
            losses = [self.loss(rows) * len(rows) for rows in np.array_split(validation, -(-len(validation) // 128))]
        self.model.train()
        loss = float(torch.stack(losses).sum())
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        for name in ("last", "best") if loss < self.best else ("last",):
            torch.save(state, folder / f"{name}.ckpt")
        self.best = min(loss, self.best)
        return Epoch(time.perf_counter() - started, trained.loss, time.process_time() - cpu_started)


def bucketed(workload: Workload, fused: bool = False) -> EpochTrainer:
    """Train on exactly the batches of seqclf's command. `fused`: with the fused AdamW, which the command uses too."""
    loop = Loop(workload, flush_denormal=True, fused=fused)
    epochs = iter(workload.epochs)
    return lambda: loop.epoch(next(epochs))


def bucketed_whole(workload: Workload) -> EpochTrainer:
    """Train as `bucketed` with fused AdamW, and time validation and checkpoints too."""
    loop = Loop(workload, flush_denormal=True, fused=True)
    epochs, folder = iter(workload.epochs), Path(tempfile.mkdtemp())
    # As many rows as the command validates, shortest first, as it does.
    validation = np.argsort([len(sequence) for sequence in workload.sequences])[:: len(workload.labels) // 512 or 1]
    return lambda: loop.whole_epoch(next(epochs), validation[:512], folder)


def random(workload: Workload) -> EpochTrainer:
    """Train on random batches, padded to the longest sequence of each."""
    loop = Loop(workload, flush_denormal=False)
    return lambda: loop.epoch(shuffled(len(workload.labels)))


def static(workload: Workload) -> EpochTrainer:
    """Train on random batches, padded to the longest sequence of all."""
    loop = Loop(workload, flush_denormal=False, length=workload.max_length)
    return lambda: loop.epoch(shuffled(len(workload.labels)))


def shuffled(count: int) -> list[np.ndarray]:
    """Return the rows of an epoch's batches, drawn at random."""
    return np.array_split(np.random.permutation(count), -(-count // worker.BATCH))


if __name__ == "__main__":
    fused = partial(bucketed, fused=True)
    serve(
        {
            "bucketed": bucketed,
            "bucketed_fused": fused,
            "bucketed_fused_whole": bucketed_whole,
            "random": random,
            "static": static,
        }
    )
