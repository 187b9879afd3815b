"""Sessions of ONNX Runtime that run the model of a bundle."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnxruntime

from seqclf.bundle.cuda import INSTALL, PROVIDER, cuda_obstacle, has_card, not_started
from seqclf.config.suggestions import must_be_one_of
from seqclf.data.field_spec import FieldSpec, input_axes, input_type
from seqclf.errors import InputError, first_line
from seqclf.system.memory_errors import is_out_of_memory

DEVICES = ("auto", "cpu", "cuda")
CPU = "CPUExecutionProvider"
ON_CARD = re.compile("cuda|cudnn|cublas", re.IGNORECASE)  # words in the errors of a card without memory or cuDNN
ONE_TOKEN = np.ones(1, np.int64)  # lengths of the smallest batch


def thread_count(threads: int | None) -> int:
    """Return the CPU threads to use: `threads`, or one for each core of this process if it is None."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads}", "must be a whole number of at least 1, or null")
    return threads


class ModelSession(onnxruntime.InferenceSession):
    """A session of ONNX Runtime, which may be called from several threads.

    `provider`: what computes the model. `no_cuda`: why a card that is here is not used, and the remedy; None if it is
    used, if there is none, and if the CPU was asked for.
    """

    no_cuda: str | None = None

    @property
    def provider(self) -> str:
        """Name of the provider that ONNX Runtime took, whatever was asked for."""
        return str(self.get_providers()[0])


def open_session(path: Path, device: str = "auto", threads: int = 1, content: bytes | None = None) -> ModelSession:
    """Open a session of the model in a file, or in `content`, which was read from that file before.

    `device`: cpu, cuda, or auto, which is CUDA where there is an NVIDIA device and the CPU where CUDA does not start.
    `threads`: that compute one batch on the CPU. Batches that are read at the same time, by one thread each, use the
    cores better (see `sequence_reader`). Raises InputError, with what is missing, for cuda that cannot be had.
    """
    if device not in DEVICES:
        raise InputError(f"device={device}", *must_be_one_of(device, DEVICES))
    model = str(path) if content is None else content
    if device == "cpu":
        return _open_on_cpu(path, model, threads)
    session, obstacle = _open_on_cuda(model, threads)
    session = session or _open_on_cpu(path, model, threads)  # first: a damaged model is damaged on every device
    if obstacle is not None and device == "cuda":
        raise obstacle.within("device=cuda")
    session.no_cuda = str(obstacle) if obstacle is not None and has_card() else None
    return session


def _open_on_cuda(model: str | bytes, threads: int) -> tuple[ModelSession | None, InputError | None]:
    """Return a session, None if there is none, and why it does not run on CUDA, None if it does."""
    obstacle = cuda_obstacle()
    if obstacle is not None:
        return None, obstacle
    try:
        session = _open(model, [PROVIDER, CPU], threads)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        return None, not_started(first_line(error))
    # ONNX Runtime leaves out a provider that it cannot load, with a line in its log.
    return session, None if runs_on_gpu(session) else not_started(f"ONNX Runtime took {session.provider}")


def _open_on_cpu(path: Path, model: str | bytes, threads: int) -> ModelSession:
    try:
        return _open(model, [CPU], threads)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(path, f"cannot be loaded ({first_line(error)})", "export the bundle anew") from None


def _open(model: str | bytes, providers: Sequence[str], threads: int) -> ModelSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Spinning threads take the cores from reading and encoding, and from PyTorch where both run in one process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # With its fallback, ONNX Runtime would print an error and go on with the CPU, here and when the model runs.
    return ModelSession(model, options, providers=list(providers), enable_fallback=0)


def runs_on_gpu(session: onnxruntime.InferenceSession) -> bool:
    """Return True if a session computes on a GPU."""
    return bool(session.get_providers()[0] != CPU)


def check_model(
    session: onnxruntime.InferenceSession,
    specs: Sequence[FieldSpec],
    classes: int,
    numbers: Mapping[str, Sequence[int | None]] = MappingProxyType({}),
) -> None:
    """Raise InputError unless the model takes what the encoders give and returns a logit for each class.

    `numbers`: name → shape of the other inputs, of type float32, with None for a free axis.
    """
    expected: dict[str, tuple[str, int]] = {"lengths": ("tensor(int64)", 1)}
    expected |= {name: ("tensor(float)", len(shape)) for name, shape in numbers.items()}
    widths: dict[str, int | None] = {name: shape[-1] if shape else None for name, shape in numbers.items()}
    for spec in specs:
        kind = "tensor(float)" if input_type(spec) is np.float32 else "tensor(int64)"
        expected[spec["name"]] = (kind, len(input_axes(spec)))
        last = input_axes(spec)[-1]
        widths[spec["name"]] = last if isinstance(last, int) else None
    inputs = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    if inputs != expected:
        raise InputError(
            None, f"takes the inputs {', '.join(sorted(inputs))}, not {', '.join(sorted(expected))} as encoded"
        )
    shapes = {entry.name: entry.shape for entry in session.get_inputs()}
    for name, width in widths.items():
        if width is not None and shapes[name][-1] != width:
            source = "the manifest" if name in numbers else "its encoder"
            raise InputError(None, f"takes {shapes[name][-1]} channels of {name}, {source} gives {width}")
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(None, f"does not return logits of {classes} classes")


def require_shape(where: str, logits: np.ndarray, rows: int, classes: int) -> None:
    """Raise InputError unless logits are (`rows`, `classes`): NumPy would spread one row or one class over all."""
    if logits.shape != (rows, classes):
        problem = f"returns logits {logits.shape} for {rows} sequences of {classes} classes"
        raise InputError(where, problem, f"return logits {(rows, classes)}, and export the bundle anew")


@contextmanager
def explain_run_errors(file: str, lengths: np.ndarray = ONE_TOKEN) -> Iterator[None]:
    """Raise InputError, which names the file of the model, for whatever goes wrong when it runs.

    `lengths`: (B,) tokens of the sequences of the batch.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # no common base class; also outputs of another shape
        if is_out_of_memory(error):
            batch = f"{len(lengths):,} sequences of up to {int(lengths.max()):,} tokens"
            raise InputError(file, f"out of memory with a batch of {batch}", "set threads=1") from None
        remedy = f"{INSTALL}, or set device=cpu" if ON_CARD.search(str(error)) else "export the bundle anew"
        raise InputError(file, f"cannot be run ({first_line(error)})", remedy) from None
