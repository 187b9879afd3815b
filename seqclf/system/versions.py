"""The versions a model was made with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from seqclf import __version__


def package_versions() -> dict[str, str]:
    return {"seqclf": __version__, **{name: _version(name) for name in ("torch", "onnx", "onnxruntime")}}


def _version(name: str) -> str:
    """ONNX Runtime comes in packages of several names."""
    for package in (name, f"{name}-gpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
