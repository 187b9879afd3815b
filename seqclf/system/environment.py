"""Versions of the packages that a model is made with, and the memory of this process."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from seqclf.system.version import __version__


def package_versions() -> dict[str, str]:
    """Return package → version, of this package and of those whose versions may change a model's outputs."""
    return {"seqclf": __version__, **{name: _version(name) for name in ("torch", "onnx", "onnxruntime")}}


def _version(name: str) -> str:
    for package in (name, f"{name}-gpu"):  # ONNX Runtime is installed as one or the other
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"


# Memory of this process.

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Return the memory that this process holds now, in MB (1e6 bytes)."""
    return psutil.Process().memory_info().rss / 1e6


def peak_mb() -> float:
    """Return the most memory that this process has held, in MB (1e6 bytes).

    On Linux psutil knows no peak, and `getrusage` starts with that of the parent process, so VmHWM is read instead.
    """
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
