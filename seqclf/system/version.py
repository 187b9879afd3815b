"""Version number of this package, which the build of the package reads too, and the versions of other packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__version__ = "0.4.0"
DISTRIBUTION, RUNTIME = "seqclf", "seqclf-runtime"  # packages on PyPI: the whole, and what predicts without PyTorch
VERSIONED = ("torch", "onnx", "onnxruntime", "numpy", "pyarrow")


def package_versions() -> dict[str, str]:
    """Return the installed versions of seqclf and of the packages by which a model may compute different outputs."""
    return {"seqclf": __version__, **{name: _version(name) for name in VERSIONED}}


def _version(name: str) -> str:
    for package in (name, f"{name}-gpu"):  # the package of ONNX Runtime is either onnxruntime or onnxruntime-gpu
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
