"""Batched inference: compute the logits of encoded sequences with the model of a bundle, whole or in chunks.

On a CPU, several batches are computed at the same time, with one thread each: ONNX Runtime cannot use many cores well
for one batch, because a recurrent layer computes one token after the other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.manifest import MODEL
from seqclf.bundle.session import CPU, explain_run_errors, require_shape, runs_on_gpu
from seqclf.bundle.step_model import Read, StepModel, read_chunks
from seqclf.data.field_spec import FieldSpec, kind_of
from seqclf.data.ragged import Ragged
from seqclf.system import progress
from seqclf.system.atomic_files import scratch_folder
from seqclf.system.resources import available_memory

MAX_TOKENS = 2048  # maximum number of tokens in a batch on a CPU, including padding
BATCH_OVERHEAD = 5.0  # cost of one more batch, in rows per time step: more padding is cut off into a batch of its own
MAX_TOKENS_ON_GPU = 32768
MAX_WORKERS = 32  # maximum number of batches at the same time, because each batch needs memory
LONG_ROW = 4 * MAX_TOKENS  # tokens on a CPU; longer rows are read by chunks, or whole if memory allows
LONG_ROW_CHUNK = 2048  # number of tokens in a chunk of a long row
CHUNK = 16  # number of tokens in a chunk; halted sequences leave the batch after a chunk


class ReaderLimits(NamedTuple):
    """Maximum number of tokens in a batch, with padding, and number of batches at the same time (`workers`).

    The number of threads has no influence on the batches, so that all digits of the logits are reproducible.
    """

    max_tokens: int
    workers: int

    @classmethod
    def of(cls, session: Any, threads: int, *, by_chunks: bool) -> ReaderLimits:
        """Return the limits for a session on a GPU, or on a CPU with `threads` threads. Chunks need less memory."""
        if runs_on_gpu(session):
            return cls(MAX_TOKENS_ON_GPU, 1)
        return cls(MAX_TOKENS * (4 if by_chunks else 1), min(threads, MAX_WORKERS))


class WholeSequences:
    """Reads all tokens of a batch in one run of `model.onnx`.

    A row of more than `long_row` tokens, which is a batch of its own, is read by chunks if the model can (`open_step`),
    so that its memory does not grow with its length. A model that `halts` reads all rows of more than one chunk so, up
    to the token at which each halts. `inputs`: names of the fields. `extra`: dict name of an output beside the logits →
    array without rows.
    """

    def __init__(
        self,
        session: Any,
        inputs: Sequence[str],
        open_step: Callable[[], StepModel] | None = None,
        extra: Mapping[str, np.ndarray] = MappingProxyType({}),
        *,
        halts: bool = False,
    ):
        self.session = session
        self.inputs = inputs
        self.extra = extra
        self.open_step = None if open_step is None else cache(open_step)
        long_row = MAX_TOKENS_ON_GPU if runs_on_gpu(session) else LONG_ROW
        self.long_row, self.chunk = (CHUNK, CHUNK) if halts else (long_row, LONG_ROW_CHUNK)
        self.each = False  # True to return results after each token
        self._one_long_row = Lock()  # because each may take all memory that `MemoryEstimate` allows

    def with_output(self, extra: Mapping[str, np.ndarray]) -> WholeSequences:
        """Return a reader of the same session with more outputs."""
        reader = copy.copy(self)
        reader.extra = {**self.extra, **extra}
        return reader

    def __call__(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Read:
        if self.each and self.open_step is not None:
            return read_chunks(self.open_step(), fields, lengths, None)
        arrays = {**{name: fields[name] for name in self.inputs}, "lengths": lengths}
        if lengths.max() <= self.long_row:
            return self._run(arrays)
        if self.open_step is not None:
            return read_chunks(self.open_step(), fields, lengths, self.chunk)
        options = onnxruntime.RunOptions()
        if not runs_on_gpu(self.session):  # ONNX Runtime would keep the memory of each long row
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        with self._one_long_row:
            return self._run(arrays, options)

    def _run(self, arrays: Mapping[str, np.ndarray], options: Any = None) -> Read:
        logits, *others = self.session.run(["logits", *self.extra], arrays, options)
        return Read(logits, dict(zip(self.extra, others, strict=True)))


def batches_by_length(lengths: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Return the row indices of batches of similar length, of at most `max_tokens` tokens with padding."""
    if len(lengths) == 1:
        return [np.zeros(1, np.int64)]
    # ONNX Runtime also computes padding, so batches with little padding are several times faster.
    plan = {"max_sequences": None, "pool_batches": None, "seed": 0, "epoch": 0}
    return plan_batches(lengths, max_tokens=max_tokens, overhead=BATCH_OVERHEAD, **plan)  # type: ignore[arg-type]


def read_sequences(read: WholeSequences, sequences: Ragged, classes: int, limits: ReaderLimits) -> Read:
    """Return the results of N encoded sequences, or of their S tokens, in order, from batches of similar length."""
    size = int(sequences.offsets[-1]) if read.each else len(sequences)
    logits = np.empty((size, classes), np.float32)
    extra = {name: np.empty((size, *empty.shape[1:]), empty.dtype) for name, empty in read.extra.items()}
    batches = batches_by_length(sequences.lengths, limits.max_tokens)

    def read_batch(rows: np.ndarray) -> int:
        with explain_run_errors(MODEL, sequences.lengths[rows]):
            result = read(*pad(sequences, rows))
            ends = sequences.offsets
            places = np.concatenate([np.arange(*ends[row : row + 2]) for row in rows]) if read.each else rows
            require_shape(MODEL, result.logits, len(places), classes)
            logits[places] = result.logits
            for name, values in extra.items():
                values[places] = result.extra[name]
        return len(rows)

    workers = min(limits.workers, len(batches))
    with ThreadPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for count in map(read_batch, batches) if pool is None else pool.map(read_batch, batches):
            progress.advance("rows", count)  # after each batch, because a whole window of rows may take long
    return Read(logits, extra)


MAX_MEMORY_FRACTION = 0.5  # share of the memory of this process that one row may use
LENGTHS = (1023, 2047, 4095)  # tokens of the measured rows; full binary trees have such numbers of nodes


class MemoryEstimate:
    """Predicts the memory that the model `content` needs for one row on a CPU.

    The memory for n tokens is a + b n + c n² bytes, fit to three rows of zeros when the first row of more than
    `LONG_ROW` tokens comes.
    """

    def __init__(self, content: bytes, folder: Path, specs: Sequence[FieldSpec]):
        self.content, self.folder, self.specs = content, folder, specs
        self._coefficients: dict[tuple[tuple[int, ...], ...], np.ndarray] = {}

    def errors(self, sequences: Ragged) -> dict[int, str]:
        """Return the error of each long row that needs too much memory, as a dict position of the row → error."""
        errors = {}
        for row in np.flatnonzero(sequences.lengths > LONG_ROW).tolist():
            fields, lengths = pad(sequences, np.array([row]))
            limit, needed = MAX_MEMORY_FRACTION * available_memory(), self.needed(fields, int(lengths[0]))
            if needed > limit:
                errors[row] = (
                    f"has {lengths[0]:,} tokens; this model needs about {needed / 1e9:,.1f} GB for them, above the "
                    f"limit of {limit / 1e9:,.1f} GB ({MAX_MEMORY_FRACTION:.0%} of the memory); shorten the row, "
                    "or train a model that reads chunks, such as model=lstm model.bidirectional=false"
                )
        return errors

    def needed(self, fields: dict[str, np.ndarray], length: int) -> float:
        """Return the bytes that a row of `length` tokens needs. `fields`: the padded row."""
        shapes = tuple(fields[spec["name"]].shape[2:] for spec in self.specs)  # the ids of a token differ between rows
        if shapes not in self._coefficients:
            with explain_run_errors(MODEL):
                tensors, peaks = np.transpose([self._measure(fields, count) for count in LENGTHS])
            # Peaks include the scratch memory of kernels, but also unused ends of blocks, which spoil the fit of c. The
            # tensors alone have exact coefficients.
            self._coefficients[shapes] = np.polyfit(LENGTHS, tensors, 2).clip(0) * (peaks[-1] / tensors[-1])
        return float(np.polyval(self._coefficients[shapes], length))

    def _measure(self, fields: dict[str, np.ndarray], count: int) -> tuple[int, int]:
        """Run a row of `count` tokens. Return the most bytes of tensors at the same time, and the peak of memory."""
        inputs = {"lengths": np.array([count])}
        for spec in self.specs:
            values = fields[spec["name"]]
            shape = values.shape if spec.get("static") else (1, count, *values.shape[2:])
            inputs[spec["name"]] = np.zeros(shape, values.dtype)
            if kind_of(spec).is_tree:  # a balanced binary tree, whose root is the last node
                inputs[spec["name"]][0] = [*(count - 1 - (np.arange(count - 1, 0, -1) - 1) // 2), -1]
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(self.folder))
        options.intra_op_num_threads, options.log_severity_level, options.enable_profiling = 1, 3, True
        with scratch_folder(Path(gettempdir()), "profile-") as folder:
            options.profile_file_prefix = f"{folder}/row"
            session = onnxruntime.InferenceSession(self.content, options, providers=[CPU])
            session.run(["logits"], inputs)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        nodes = [event["args"] for event in events if "output_size" in event.get("args", {})]
        tensors = max(int(node.get("mem_bytes_requested_in_use", node["output_size"])) for node in nodes)
        return tensors, max(tensors, *(int(node.get("mem_in_use_peak", 0)) for node in nodes))
