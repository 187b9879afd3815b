"""Sessions of ONNX Runtime that run the model of a bundle."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnxruntime

from seqclf.data.field_spec import FieldSpec, input_axes, kind_of
from seqclf.errors import InputError, first_line
from seqclf.settings.typed_text import must_be_one_of
from seqclf.system.resources import MEMORY_REMEDY, available_cpus, is_out_of_memory

DEVICES = ("auto", "cpu", "cuda")
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
REMEDY = (
    "see nvidia-smi for the driver and the free memory (a container needs --gpus all), "
    'pip install "onnxruntime-gpu[cuda,cudnn]", or set device=cpu'
)
# ONNX Runtime multiplies matrices with 10 bits of precision where the card can. Probabilities on an H200 then differed
# from those on a CPU by up to 6e-3.
WITHOUT_TF32 = {"use_tf32": "0"}
ON_CARD = re.compile("cuda|cudnn|cublas", re.IGNORECASE)  # words in error texts of CUDA
ONE_TOKEN = np.ones(1, np.int64)  # the array `lengths` of a batch with a single token


def has_card() -> bool:
    """Return True if there is a device file of an NVIDIA GPU, and CUDA_VISIBLE_DEVICES does not hide all GPUs."""
    hides_all = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    return not hides_all and any(Path("/dev").glob("nvidia[0-9]*"))


def thread_count(threads: int | None) -> int:
    """Return the number of CPU threads: `threads`, or all CPUs of this process if `threads` is None."""
    if threads is None:
        return available_cpus()
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads}", "must be a whole number of at least 1, or null")
    return threads


class ModelSession(onnxruntime.InferenceSession):
    """An ONNX Runtime session. Several threads may use a session at the same time.

    `provider`: ONNX Runtime's execution provider (CPU or CUDA). `no_cuda`: reason why the GPU of this machine is not
    used, with the remedy; None if it is used, if there is no GPU, or if the user chose the CPU.
    """

    no_cuda: str | None = None

    @property
    def provider(self) -> str:
        """Name of the execution provider that ONNX Runtime uses."""
        return str(self.get_providers()[0])


def open_session(path: Path, device: str = "auto", threads: int = 1, content: bytes | None = None) -> ModelSession:
    """Open an ONNX model in a session. `content`: bytes of the file at `path`, None to read the file.

    `device`: "cpu", "cuda" or "auto", an NVIDIA GPU if CUDA starts, else the CPU. `threads`: number of CPU threads that
    compute one batch, one by default, because several batches at the same time use the cores better (see
    `sequence_reader`). Raises InputError if `device` is "cuda" and CUDA cannot be used.
    """
    if device not in DEVICES:
        raise InputError(f"device={device}", *must_be_one_of(device, DEVICES))
    model = str(path) if content is None else content
    problem = None
    if device != "cpu":
        session, problem = _open_on_cuda(model, path.parent, threads)
        if session is not None:
            return session
    try:
        session = _open(model, path.parent, {CPU: {}}, threads)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        remedy = MEMORY_REMEDY if is_out_of_memory(error) else "export the bundle anew"
        raise InputError(path, f"cannot be loaded ({first_line(error)})", remedy) from None
    if device == "cuda":  # after the CPU, which raises the error of a damaged model
        raise InputError("device=cuda", problem, REMEDY)
    session.no_cuda = f"{problem}; {REMEDY}" if problem is not None and has_card() else None
    return session


def _open_on_cuda(model: str | bytes, folder: Path, threads: int) -> tuple[ModelSession | None, str]:
    """Return a session on CUDA, or None and the reason why CUDA is not used."""
    if not has_card():
        return None, "no NVIDIA device file, such as /dev/nvidia0, is here, or CUDA_VISIBLE_DEVICES hides it"
    if CUDA not in onnxruntime.get_available_providers():
        return None, f"this onnxruntime has no {CUDA}"
    # Load the CUDA libraries that were installed as Python packages. The function prints missing libraries on stdout,
    # but a command may print only its result on stdout.
    with redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()
    try:
        session = _open(model, folder, {CUDA: WITHOUT_TF32, CPU: {}}, threads)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        return None, f"{CUDA} does not start ({first_line(error)})"
    # If ONNX Runtime cannot load a provider, it only logs the reason and uses the next provider.
    if not runs_on_gpu(session):
        return None, f"{CUDA} does not start, ONNX Runtime took {CPU}"
    return session, ""


def _open(model: str | bytes, folder: Path, providers: Mapping[str, dict[str, str]], threads: int) -> ModelSession:
    """`providers`: dict provider → its options, the preferred first."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # exceptions tell the errors, which would also be printed
    # A model may name files that hold its weights. Without a folder, they would be read from the working folder.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    options.intra_op_num_threads = threads
    # Threads that spin while they wait would take CPU time from other threads: reading, encoding and PyTorch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # With enable_fallback, ONNX Runtime would print an error, and use the CPU for this and all later runs.
    session = ModelSession(model, options, providers=list(providers.items()), enable_fallback=0)
    for entry in (*session.get_inputs(), *session.get_outputs()):
        str(entry)  # decodes the names of an input and its axes
    return session


def runs_on_gpu(session: onnxruntime.InferenceSession) -> bool:
    return bool(session.get_providers()[0] != CPU)


def check_model(
    session: onnxruntime.InferenceSession,
    specs: Sequence[FieldSpec],
    classes: int,
    numbers: Mapping[str, Sequence[int | None]] = MappingProxyType({}),
) -> None:
    """Raise InputError unless the model's inputs are the encoded fields and its output is one logit per class.

    `numbers`: float32 inputs that are not fields, a dict name → shape, in which None is an axis of any length.
    """

    def form(kind: str, shape: Sequence[Any]) -> tuple[str, int, int | None]:
        """Return the type of an input, its number of axes, and the size of the last axis if it is fixed."""
        return kind, len(shape), shape[-1] if shape and isinstance(shape[-1], int) else None

    expected = {"lengths": form("tensor(int64)", ["batch"])}
    expected |= {name: form("tensor(float)", shape) for name, shape in numbers.items()}
    for spec in specs:
        kind = "tensor(float)" if kind_of(spec).has_numbers else "tensor(int64)"
        expected[spec["name"]] = form(kind, input_axes(spec))
    inputs = {entry.name: form(entry.type, entry.shape) for entry in session.get_inputs()}
    if inputs != expected:
        wrong = min(name for name in inputs | expected if inputs.get(name) != expected.get(name))
        names = ", ".join(sorted(expected))
        raise InputError(None, f"takes the inputs {', '.join(sorted(inputs))}, not {names} as encoded (see {wrong})")
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(None, f"does not return logits of {classes} classes")


NUMBERS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


def empty_outputs(session: onnxruntime.InferenceSession, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return an array without rows for each of the outputs `names`, of its type and of the shape (0,) or (0, D).

    Raises InputError for an output that is missing or is not a number or a vector for each row.
    """
    outputs = {entry.name: entry for entry in session.get_outputs()}
    found = {}
    for name in names:
        entry = outputs.get(name)
        if entry is None or entry.type not in NUMBERS or len(entry.shape) not in (1, 2):
            raise InputError(None, f"does not return {name} as a number or a vector for each row")
        if not all(isinstance(size, int) for size in entry.shape[1:]):
            raise InputError(None, f"returns {name} in vectors of no fixed size")
        found[name] = np.empty((0, *entry.shape[1:]), NUMBERS[entry.type])
    return found


def require_shape(where: str, logits: Any, rows: int, classes: int) -> None:
    """Raise InputError unless the shape is (`rows`, `classes`): NumPy would broadcast one row or one class silently."""
    if (shape := tuple(logits.shape)) != (rows, classes):
        problem = f"returns logits {shape} for {rows} sequences of {classes} classes"
        raise InputError(where, problem, f"return logits {(rows, classes)}, and export the bundle anew")


@contextmanager
def explain_run_errors(file: str, lengths: np.ndarray = ONE_TOKEN) -> Iterator[None]:
    """Convert an error of ONNX Runtime in the block to an InputError with the model file and the `lengths` (B,)."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        if is_out_of_memory(error):
            batch = f"{len(lengths):,} sequences of up to {int(lengths.max()):,} tokens"
            raise InputError(file, f"out of memory with a batch of {batch}", "set threads=1") from None
        remedy = REMEDY if ON_CARD.search(str(error)) else "export the bundle anew"
        raise InputError(file, f"cannot be run ({first_line(error)})", remedy) from None
