"""Tensors in the arguments and outputs of modules, which may be nested in tuples, lists, dicts and packed sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Leaf = Tensor | PackedSequence


def leaves(value: Any) -> Iterator[Leaf]:
    """Yield the tensors and packed sequences in a value, in their order. Anything else is left out.

    >>> import torch
    >>> [tuple(leaf.shape) for leaf in leaves((torch.zeros(2, 3), {"length": torch.ones(2)}, None))]
    [(2, 3), (2,)]
    """
    if isinstance(value, (Tensor, PackedSequence)):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from leaves(part)


def values_of(leaf: Leaf) -> Tensor:
    """Return the tensor of a leaf: the values of a packed sequence, and those that a sparse tensor stores."""
    tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
    return tensor._values() if tensor.is_sparse else tensor


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a value of the same structure with `function` applied to each tensor, and to the data of packed ones."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, PackedSequence):
        return value._replace(data=function(value.data))
    if isinstance(value, dict):
        return {name: map_tensors(part, function) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [map_tensors(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [map_tensors(part, function) for part in value] if isinstance(value, list) else value
