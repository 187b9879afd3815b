"""Logits of encoded sequences: whole ones in one run of the model, or chunk by chunk until they halt.

On a CPU, several batches are read at the same time, each by one thread. A recurrent layer computes one token after the
other, so that ONNX Runtime cannot divide the work on one batch among many cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.manifest import MODEL
from seqclf.bundle.session import explain_run_errors, require_shape, runs_on_gpu
from seqclf.bundle.step_model import STEP, Read, StepModel, read_chunks
from seqclf.data.ragged import Ragged
from seqclf.system import progress

MAX_TOKENS = 8192  # in a batch on a CPU, padding included
MAX_TOKENS_ON_GPU = 32768
MAX_WORKERS = 32  # so that the memory of all batches together stays moderate
CHUNK = 16  # tokens between two looks at which sequences have halted


class BatchLimits(NamedTuple):
    """`max_tokens`: in a batch, padding included. `workers`: batches that are read at the same time.

    The batches do not depend on the number of threads, so neither do the last digits of the results.
    """

    max_tokens: int
    workers: int

    @classmethod
    def of(cls, session: Any, threads: int, *, by_chunks: bool) -> BatchLimits:
        """Return the limits of a model on a GPU, or on `threads` threads of the CPU.

        `by_chunks`: only a part of the tokens of each sequence is computed at a time.
        """
        if runs_on_gpu(session):
            return cls(MAX_TOKENS_ON_GPU, 1)
        return cls(MAX_TOKENS * (4 if by_chunks else 1), min(threads, MAX_WORKERS))


class BatchReader(Protocol):
    """Reads a padded batch (see `pad`), and may be called from several threads.

    `file`: the model in the bundle. `session`: its session of ONNX Runtime.
    """

    file: str
    session: Any

    def __call__(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Read: ...


class WholeSequences:
    """Reads all tokens in one run of `model.onnx`. `inputs`: names of the fields."""

    file = MODEL

    def __init__(self, session: Any, inputs: Sequence[str]):
        self.session = session
        self.inputs = inputs

    def __call__(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Read:
        arrays = {name: fields[name] for name in self.inputs}
        return Read(self.session.run(["logits"], {**arrays, "lengths": lengths})[0], lengths)


class UntilHalted:
    """Reads `chunk` tokens at a time by `step.onnx`, until a sequence halts."""

    file = STEP

    def __init__(self, model: StepModel, chunk: int):
        self.model = model
        self.session = model.session
        self.chunk = chunk

    def __call__(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Read:
        return read_chunks(self.model, fields, lengths, self.chunk)


def batches_by_length(lengths: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Return the rows of each batch of sequences of similar length, of at most `max_tokens` with padding."""
    # ONNX Runtime computes padded tokens too: batches of similar length are several times as fast.
    return plan_batches(lengths, max_tokens=max_tokens, max_sequences=None, pool_batches=None, seed=0, epoch=0)


def read_sequences(read: BatchReader, sequences: Ragged, classes: int, limits: BatchLimits) -> Read:
    """Read N encoded sequences in batches of similar length, and return (N, C) logits in their order."""
    logits, tokens = np.empty((len(sequences), classes), np.float32), np.empty(len(sequences), np.int64)
    batches = batches_by_length(sequences.lengths, limits.max_tokens)

    def read_batch(rows: np.ndarray) -> int:
        with explain_run_errors(read.file, sequences.lengths[rows]):
            result = read(*pad(sequences, rows))
            require_shape(read.file, result.logits, len(rows), classes)
            logits[rows], tokens[rows] = result
        return len(rows)

    for count in _in_threads(read_batch, batches, limits.workers):
        progress.advance("rows", count)  # of a window, which may take long
    return Read(logits, tokens)


def _in_threads(function: Callable[[np.ndarray], int], batches: Sequence[np.ndarray], workers: int) -> Iterator[int]:
    """Yield the results of the batches in their order. After an error, batches that have not begun are left out."""
    workers = min(workers, len(batches))
    if workers <= 1:
        yield from map(function, batches)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, batches)
