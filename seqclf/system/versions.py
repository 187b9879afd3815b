"""Versions of the packages that a model is made with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from seqclf import __version__


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
