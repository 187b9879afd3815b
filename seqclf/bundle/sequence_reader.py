"""Logits of encoded sequences: whole ones in one run of the model, or chunk by chunk until they halt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.manifest import MODEL
from seqclf.bundle.session import explain_run_errors
from seqclf.bundle.step_model import STEP, Read, StepModel, read_chunks
from seqclf.data.storage.ragged import Ragged
from seqclf.system import progress

MAX_TOKENS = 32768  # in a batch, padding included
CHUNK = 16  # tokens between two looks at which sequences have halted


class BatchReader(Protocol):
    """Reads a padded batch (see `pad`). `file`: the model in the bundle."""

    file: str

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
        self.chunk = chunk

    def __call__(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Read:
        return read_chunks(self.model, fields, lengths, self.chunk)


def batches_by_length(lengths: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each batch of sequences of similar length, of at most `MAX_TOKENS` with padding."""
    # ONNX Runtime computes padded tokens too: batches of similar length are several times as fast.
    return plan_batches(lengths, max_tokens=MAX_TOKENS, max_sequences=None, pool_batches=None, seed=0, epoch=0)


def read_sequences(read: BatchReader, sequences: Ragged, classes: int) -> Read:
    """Read N encoded sequences in batches of similar length, and return (N, C) logits in their order."""
    logits, tokens = np.empty((len(sequences), classes), np.float32), np.empty(len(sequences), np.int64)
    for rows in batches_by_length(sequences.lengths):
        with explain_run_errors(read.file):
            logits[rows], tokens[rows] = read(*pad(sequences, rows))
        progress.advance("rows", len(rows))  # of a window, which may take long
    return Read(logits, tokens)
