"""Errors of a memory that is full, which each library reports in its own way."""

from __future__ import annotations

import re

# PyTorch's and DuckDB's classes, by name so that neither is imported. NumPy's is a MemoryError.
CLASSES = ("OutOfMemoryError", "OutOfMemoryException")
# PyTorch on a CPU, cuBLAS, ONNX Runtime and C++ raise general errors with these texts.
TEXT = re.compile(
    r"DefaultCPUAllocator|not enough memory|CUBLAS_STATUS_ALLOC_FAILED|Failed to allocate memory|bad_?\s?alloc", re.I
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for an error about memory, of PyTorch, NumPy, DuckDB or ONNX Runtime.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("size mismatch"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or type(error).__name__ in CLASSES or bool(TEXT.search(str(error)))
