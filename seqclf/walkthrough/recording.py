"""Recording of the inputs and outputs of a network's modules in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.training.debugging.module_hooks import ModuleHooks


class Call(NamedTuple):
    """One call of a module: positional arguments, keyword arguments and output."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


def record(network: nn.Module, run: Callable[[], Any]) -> tuple[Any, dict[str, Call]]:
    """Call the function `run` without gradients.

    Return the result of `run`, and the first call of each module of `network`, by the dotted path of the module and in
    the order in which the calls ended.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> output, calls = record(network, lambda: network(torch.zeros(1, 2)))
    >>> list(calls), calls["0"].output.shape, calls["1"].output is output
    (['0', '1', ''], torch.Size([1, 3]), True)
    """
    calls: dict[str, Call] = {}

    def keep(name: str, role: str, value: Any, inputs: Any) -> None:
        if role == "output":
            args, kwargs = inputs
            calls.setdefault(name, Call(args, kwargs, value))

    hooks = ModuleHooks(network, keep)
    try:
        with torch.inference_mode():
            result = run()
    finally:
        hooks.remove()
    return result, calls


def as_array(values: Tensor) -> np.ndarray:
    """Convert a tensor to a float32 array, or to an int64 array if the tensor has integers."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values.long()).numpy()
