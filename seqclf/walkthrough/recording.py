"""Inputs and outputs of the modules of a network in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.training.debugging.module_hooks import ModuleHooks
from seqclf.walkthrough.stages import Part, TokenVectors, varying_channels


class Call(NamedTuple):
    """One call of a module: its arguments by position and by name, and its output."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


class Recording:
    """The first call of every module of a network that ran. Names are dotted, "" is the network itself.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> output, recorded = record(network, lambda: network(torch.zeros(1, 2)))
    >>> recorded.output("0").shape, recorded.inside("1").output("") is output
    (torch.Size([1, 3]), True)
    """

    def __init__(self, calls: Mapping[str, Call], path: str = ""):
        self.calls = calls
        self.path = path

    def name(self, module: str) -> str:
        """Return the dotted name in the whole network of a module inside this part."""
        return ".".join(filter(None, [self.path, module]))

    def inside(self, module: str) -> Recording:
        """Return the recording of a module and of those inside it, by their names in it."""
        return Recording(self.calls, self.name(module))

    def ran(self, module: str) -> bool:
        """Return True if a module ran."""
        return self.name(module) in self.calls

    def call(self, module: str) -> Call:
        """Return the first call of a module. Raises KeyError if it did not run."""
        return self.calls[self.name(module)]

    def output(self, module: str) -> Any:
        """Return the output of the first call of a module."""
        return self.call(module).output


def record(network: nn.Module, run: Callable[[], Any]) -> tuple[Any, Recording]:
    """Return what `run` returns, and the calls of the modules of `network` in it. No gradients are kept."""
    calls: dict[str, Call] = {}

    def keep(name: str, inputs: Any, output: Any) -> None:
        args, kwargs = inputs
        calls.setdefault(name, Call(args, kwargs, output))

    hooks = ModuleHooks(network, after=keep)
    try:
        with torch.inference_mode():
            result = run()
    finally:
        hooks.remove()
    return result, Recording(calls)


def as_array(values: Tensor) -> np.ndarray:
    """Return a tensor as float32, or as int64 where it holds integers."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values.long()).numpy()


class BatchView(NamedTuple):
    """The batch that a network got. `lengths`: (B,). `tokens`: a text for each token, by row, None for vectors."""

    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None


class Outputs(NamedTuple):
    """The outputs of an encoder (B, T', D), their lengths (B,), and the names of their channels."""

    values: np.ndarray
    lengths: np.ndarray
    parts: Sequence[Part]
    channels: np.ndarray


def token_vectors(
    values: np.ndarray, lengths: np.ndarray, tokens: Sequence[Sequence[str]] | None, parts: Sequence[Part] = ()
) -> TokenVectors:
    """Return the content of a stage with a vector for each token."""
    parts = parts or [Part("", 0, values.shape[-1])]
    return TokenVectors(values, lengths, varying_channels(values, lengths, parts), parts, tokens)
