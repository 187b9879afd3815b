"""Sessions of ONNX Runtime that run the model of a bundle."""

from __future__ import annotations

import ctypes
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnxruntime

from seqclf.config.hints import must_be_one_of
from seqclf.data.field_spec import FieldSpec, input_axes, input_type
from seqclf.errors import InputError, first_line
from seqclf.system.memory_errors import is_out_of_memory
from seqclf.system.threads import available_cpus

PROVIDER = "CUDAExecutionProvider"
REMEDY = (
    "see nvidia-smi for the driver and the free memory (a container needs --gpus all), "
    'pip install "onnxruntime-gpu[cuda,cudnn]", or set device=cpu'
)
NO_LIBRARY = "cannot open shared object file"  # error text of Linux's dynamic loader
# ONNX Runtime multiplies matrices with 10 bits of precision where the card can. Probabilities on an H200 then differed
# from those on a CPU by up to 6e-3.
WITHOUT_TF32 = {"use_tf32": "0"}


def has_card() -> bool:
    """Return True if there is a device file of an NVIDIA GPU, and CUDA_VISIBLE_DEVICES does not hide all GPUs."""
    hides_all = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    return not hides_all and any(Path("/dev").glob("nvidia[0-9]*"))


@cache  # cached, because each call would load the library once more
def loader_error() -> str | None:
    """Return the error of the loader if a shared library is missing that ONNX Runtime's CUDA provider needs, else None.

    ONNX Runtime itself prints this error and uses the CPU. This function also loads the CUDA libraries that were
    installed as Python packages.
    """
    # `preload_dlls` prints missing libraries on stdout, but a command may print only its result on stdout.
    with redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()
    library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    if not library.exists():  # not Linux, or the CUDA provider is built into ONNX Runtime
        return None
    try:
        ctypes.CDLL(str(library))
    except OSError as error:  # the text may name only undefined symbols; then no library is missing
        return first_line(error) if NO_LIBRARY in str(error) else None
    return None


def cuda_problem() -> str | None:
    """Return the reason why CUDA cannot be used, None if no reason is known."""
    if not has_card():
        return "no NVIDIA device file, such as /dev/nvidia0, is here, or CUDA_VISIBLE_DEVICES hides it"
    if PROVIDER not in onnxruntime.get_available_providers():
        return f"this onnxruntime has no {PROVIDER}"
    return loader_error()


DEVICES = ("auto", "cpu", "cuda")
CPU = "CPUExecutionProvider"
ON_CARD = re.compile("cuda|cudnn|cublas", re.IGNORECASE)  # words in error texts of CUDA
ONE_TOKEN = np.ones(1, np.int64)  # the array `lengths` of a batch with a single token


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
    used, with the remedy. `no_cuda` is None if the GPU is used, if there is no GPU, or if the user chose the CPU.
    """

    no_cuda: str | None = None

    @property
    def provider(self) -> str:
        """Name of the execution provider that ONNX Runtime uses."""
        return str(self.get_providers()[0])


def open_session(path: Path, device: str = "auto", threads: int = 1, content: bytes | None = None) -> ModelSession:
    """Open an ONNX model in a session. `content`: bytes of the file at `path`, None to read the file.

    `device`: "cpu", "cuda" or "auto". With "auto", the session uses an NVIDIA GPU if CUDA starts, else the CPU.
    `threads`: number of CPU threads that compute one batch. The default is one thread, because several batches at the
    same time use the cores better (see `sequence_reader`). Raises InputError if `device` is "cuda" and CUDA cannot be
    used.
    """
    if device not in DEVICES:
        raise InputError(f"device={device}", *must_be_one_of(device, DEVICES))
    model = str(path) if content is None else content
    if device == "cpu":
        return _open_on_cpu(path, model, threads)
    session, problem = _open_on_cuda(model, threads)
    session = session or _open_on_cpu(path, model, threads)  # raises an error for a damaged model
    if problem is not None and device == "cuda":
        raise InputError("device=cuda", problem, REMEDY)
    session.no_cuda = f"{problem}; {REMEDY}" if problem is not None and has_card() else None
    return session


def _open_on_cuda(model: str | bytes, threads: int) -> tuple[ModelSession | None, str | None]:
    """Open a session on CUDA.

    Return a pair: the session or None, and the reason why CUDA is not used or None.
    """
    problem = cuda_problem()
    if problem is not None:
        return None, problem
    try:
        session = _open(model, [PROVIDER, CPU], threads, [WITHOUT_TF32, {}])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        return None, f"{PROVIDER} does not start ({first_line(error)})"
    # If ONNX Runtime cannot load a provider, it only logs an error and uses the next provider in the list.
    return session, None if runs_on_gpu(session) else f"{PROVIDER} does not start (ONNX Runtime took {CPU})"


def _open_on_cpu(path: Path, model: str | bytes, threads: int) -> ModelSession:
    try:
        return _open(model, [CPU], threads)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(path, f"cannot be loaded ({first_line(error)})", "export the bundle anew") from None


def _open(
    model: str | bytes, providers: Sequence[str], threads: int, options_of: Sequence[dict[str, str]] | None = None
) -> ModelSession:
    """Open a session. `options_of`: options of each provider, None for the defaults."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Threads that spin while they wait would take CPU time from other threads: reading, encoding and PyTorch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # With enable_fallback, ONNX Runtime would print an error, and use the CPU for this and all later runs.
    return ModelSession(model, options, providers=list(providers), provider_options=options_of, enable_fallback=0)


def runs_on_gpu(session: onnxruntime.InferenceSession) -> bool:
    """Return True if a session uses a GPU."""
    return bool(session.get_providers()[0] != CPU)


def check_model(
    session: onnxruntime.InferenceSession,
    specs: Sequence[FieldSpec],
    classes: int,
    numbers: Mapping[str, Sequence[int | None]] = MappingProxyType({}),
) -> None:
    """Raise InputError unless the model's inputs are the encoded fields and its output is one logit per class.

    `numbers`: inputs of type float32 that are not fields, as a dict name → shape. In a shape, None stands for an axis
    of any length.
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
    """Raise InputError unless the array `logits` has the shape (`rows`, `classes`).

    Without this check, NumPy would broadcast logits with one row or one class, and there would be no error.
    """
    if logits.shape != (rows, classes):
        problem = f"returns logits {logits.shape} for {rows} sequences of {classes} classes"
        raise InputError(where, problem, f"return logits {(rows, classes)}, and export the bundle anew")


@contextmanager
def explain_run_errors(file: str, lengths: np.ndarray = ONE_TOKEN) -> Iterator[None]:
    """Convert any error of ONNX Runtime in the block to an InputError that names the model file.

    `lengths`: (B,) number of tokens of each sequence in the batch.
    """
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
