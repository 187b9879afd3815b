"""One registry of ONNX operators for all exports of a process.

torch.onnx builds it anew at every export, which takes a second: a third of the export of a small model.
"""

from functools import cache

from torch.onnx._internal.exporter import _registration


def share_registry() -> None:
    """Replace the function that builds the registry by one that remembers its result."""
    registry = _registration.ONNXRegistry
    registry.from_torchlib = staticmethod(cache(registry.from_torchlib))  # also called on an instance
