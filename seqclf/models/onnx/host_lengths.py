"""Stand-in for `host_lengths` during the export, for encoders that pack their tokens by a NumPy array of lengths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from seqclf.models.onnx.obstacles import UnsupportedUseError

REMEDY = "compute with lengths, a tensor, instead of host_lengths"
# Functions of the module torch that make a tensor of a NumPy array.
CONVERSIONS = ("from_numpy", "as_tensor", "tensor")


class HostLengths(NDArrayOperatorsMixin):
    """A tensor (B,) of lengths with the arithmetic of a NumPy array, such as `(host_lengths + 1) // 2`.

    Inside `host_lengths_as_tensors`, the functions in `CONVERSIONS` return its tensor.
    """

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> HostLengths:
        function = getattr(torch, ufunc.__name__, None)  # most have the same name in PyTorch
        if method != "__call__" or options or function is None:
            raise UnsupportedUseError(f"calls np.{ufunc.__name__} on host_lengths", REMEDY)
        values = [value.tensor if isinstance(value, HostLengths) else torch.as_tensor(value) for value in inputs]
        return HostLengths(function(*values))

    def astype(self, dtype: Any, **options: Any) -> HostLengths:
        return HostLengths(self.tensor.to(torch.from_numpy(np.empty(0, dtype)).dtype))

    def copy(self) -> HostLengths:
        return self

    def max(self) -> Tensor:
        return self.tensor.max()

    def min(self) -> Tensor:
        return self.tensor.min()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols of Python and NumPy that this class does not support
            raise AttributeError(name)
        raise UnsupportedUseError(f"reads host_lengths.{name}", REMEDY)

    def __len__(self) -> int:
        raise UnsupportedUseError("takes len(host_lengths)", "write lengths.shape[0]")

    def __iter__(self) -> Iterator[int]:
        raise UnsupportedUseError("loops over host_lengths", REMEDY)

    def __getitem__(self, index: Any) -> Any:
        raise UnsupportedUseError("indexes host_lengths", REMEDY)


def as_lengths(lengths: Any) -> Tensor:
    """Return the lengths that an encoder passes to `pack_padded_sequence` as a tensor (B,) int64.

    Raises UnsupportedUseError for a list or a NumPy array, whose values the exporter would take for constants.
    """
    if lengths is None:
        raise TypeError("pack_padded_sequence: lengths is a NoneType")
    lengths = lengths.tensor if isinstance(lengths, HostLengths) else lengths
    if not isinstance(lengths, Tensor):
        raise UnsupportedUseError(
            f"packs by a {type(lengths).__name__} of lengths", "write pack_padded_sequence(tokens, lengths.cpu(), …)"
        )
    return lengths.to(torch.int64)


@contextmanager
def host_lengths_as_tensors() -> Iterator[None]:
    """Inside the `with` block, `torch.from_numpy(host_lengths)` and similar calls accept `HostLengths`."""
    originals = {name: getattr(torch, name) for name in CONVERSIONS}

    def accepting(original: Any) -> Any:
        def convert(data: Any, *arguments: Any, **options: Any) -> Tensor:
            return original(data, *arguments, **options) if not isinstance(data, HostLengths) else cast(data, options)

        return convert

    def cast(data: HostLengths, options: Any) -> Tensor:
        return data.tensor if options.get("dtype") is None else data.tensor.to(options["dtype"])

    for name, original in originals.items():
        setattr(torch, name, accepting(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)
