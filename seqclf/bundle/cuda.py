"""Obstacles to computing on an NVIDIA card with ONNX Runtime, each with its remedy."""

from __future__ import annotations

import ctypes
import io
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import onnxruntime

from seqclf.errors import InputError

PROVIDER = "CUDAExecutionProvider"
INSTALL = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
NO_LIBRARY = re.compile(r"(\S+): cannot open shared object file")  # the error text of the dynamic loader of Linux
DRIVER = "libcuda.so"


def has_card() -> bool:
    """Return True if the driver of an NVIDIA card has made a device file."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


@cache  # once loaded, the library must not be opened again: nobody would close it
def missing_library() -> str | None:
    """Return the first shared library that ONNX Runtime's CUDA provider needs and that is not found, None without one.

    CUDA's libraries in Python packages are loaded on the way.
    """
    # It prints what it does not find, on the stdout that holds the results of a command.
    with redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()
    library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    if not library.exists():  # another system, or a build with the provider inside
        return None
    try:
        ctypes.CDLL(str(library))
    except OSError as error:  # also for symbols that only ONNX Runtime can give, which says that nothing is missing
        found = NO_LIBRARY.search(str(error))
        return found[1] if found else None
    return None


def cuda_obstacle() -> InputError | None:
    """Return why CUDA cannot be used and what to do about it, None if nothing is known to be in its way."""
    if not has_card():
        return InputError(None, "no NVIDIA device file, such as /dev/nvidia0, is here", "set device=cpu")
    if PROVIDER not in onnxruntime.get_available_providers():
        remedy = f"pip uninstall onnxruntime, then {INSTALL}, or set device=cpu"
        return InputError(None, f"this onnxruntime has no {PROVIDER}", remedy)
    library = missing_library()
    if library is None:
        return None
    if library.startswith(DRIVER):
        remedy = "install NVIDIA's driver, run containers with --gpus all, or set device=cpu"
    else:
        remedy = f"{INSTALL}, or set device=cpu"
    return InputError(None, f"{library} is missing", remedy)


def not_started(reason: str) -> InputError:
    """Return the obstacle of a provider that has its libraries and yet does not start."""
    remedy = "see nvidia-smi for its driver and free memory, or set device=cpu"
    return InputError(None, f"{PROVIDER} does not start ({reason})", remedy)
