"""Sessions of ONNX Runtime that run the model of a bundle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnxruntime

from seqclf.data.encoding.field_spec import FieldSpec, input_axes, input_type
from seqclf.errors import InputError, first_line


def thread_count(threads: int | None) -> int:
    """Return the CPU threads to use: `threads`, or one for each core of this process if it is None."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads}: must be a whole number of at least 1, or null")
    return threads


def open_session(path: Path, device: str = "auto", threads: int = 1) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session, which may be called from several threads.

    `device`: cpu, cuda, or auto, which is CUDA where there is an NVIDIA device. `threads`: that compute one batch on
    the CPU. Batches that are read at the same time, by one thread each, use the cores better (see `sequence_reader`).
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device}: must be auto, cpu or cuda")
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and Path("/dev/nvidiactl").exists()
    if device == "cuda" and not has_cuda:
        raise InputError("device=cuda: no NVIDIA device or no onnxruntime-gpu here; set device=cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Spinning threads take the cores from reading and encoding, and from PyTorch where both run in one process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    use_cuda = has_cuda and device != "cpu"
    providers = ["CUDAExecutionProvider"] if use_cuda else []
    if use_cuda:
        onnxruntime.preload_dlls()
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(f"{path}: cannot be loaded ({first_line(error)}); export the bundle anew") from None


def runs_on_gpu(session: onnxruntime.InferenceSession) -> bool:
    """Return True if a session computes on a GPU."""
    return bool(session.get_providers()[0] != "CPUExecutionProvider")


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
        raise InputError(f"takes the inputs {', '.join(sorted(inputs))}, not {', '.join(sorted(expected))} as encoded")
    shapes = {entry.name: entry.shape for entry in session.get_inputs()}
    for name, width in widths.items():
        if width is not None and shapes[name][-1] != width:
            source = "the manifest" if name in numbers else "its encoder"
            raise InputError(f"takes {shapes[name][-1]} channels of {name}, {source} gives {width}")
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(f"does not return logits of {classes} classes")


@contextmanager
def explain_run_errors(file: str) -> Iterator[None]:
    """Raise InputError, which names the file of the model, for whatever goes wrong when it runs."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # no common base class; also outputs of another shape
        raise InputError(f"{file}: cannot be run ({first_line(error)}); export the bundle anew") from None
