"""Versions of the packages that a model's outputs depend on, and the memory use of this process."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from seqclf.system.version import __version__


def package_versions() -> dict[str, str]:
    """Return a dict package name → installed version, for seqclf, torch, onnx and onnxruntime.

    With other versions of these packages, a model may compute different outputs.
    """
    return {"seqclf": __version__, **{name: _version(name) for name in ("torch", "onnx", "onnxruntime")}}


def _version(name: str) -> str:
    for package in (name, f"{name}-gpu"):  # the package of ONNX Runtime is either onnxruntime or onnxruntime-gpu
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"


# Memory use of this process.

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Return the current resident memory of this process in MB (1e6 bytes)."""
    return psutil.Process().memory_info().rss / 1e6


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (1e6 bytes).

    On Linux, the peak is the entry VmHWM of /proc/self/status. The package psutil does not report a peak on Linux. The
    function `getrusage` is not used on Linux, because its peak is at least the memory of the parent process.
    """
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes in one unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
