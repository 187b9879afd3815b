"""Detection of out-of-memory errors. The libraries raise different exceptions when the memory is full."""

from __future__ import annotations

import re

# Class names of the out-of-memory errors of PyTorch and DuckDB. The names are compared instead of the classes, so that
# this module imports neither library. NumPy raises a MemoryError.
CLASSES = ("OutOfMemoryError", "OutOfMemoryException")
# Other libraries raise general exceptions, whose message contains one of these texts: PyTorch on a CPU, cuBLAS, ONNX
# Runtime, C++ code, and Python where it starts a thread or imports a library.
TEXT = re.compile(
    r"DefaultCPUAllocator|not enough memory|CUBLAS_STATUS_ALLOC_FAILED|Failed to allocate memory|bad_?\s?alloc"
    r"|Cannot allocate memory|can't start new thread|failed to map segment",
    re.IGNORECASE,
)

MEMORY_REMEDY = (
    "give it more memory, or lower what the command holds at once: batching.max_tokens in training, data.memory_limit "
    "in reading, threads in prediction"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if `error` is an out-of-memory error of PyTorch, NumPy, DuckDB or ONNX Runtime.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("size mismatch"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or type(error).__name__ in CLASSES or bool(TEXT.search(str(error)))
