"""Recording of the inputs and outputs of a network's modules in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.training.debugging.module_hooks import ModuleHooks
from seqclf.walkthrough.stages import Part, TokenVectors, varying_channels


class Call(NamedTuple):
    """One call of a module: positional arguments, keyword arguments and output."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


class Recording:
    """The first call of each module of a network in one forward pass.

    The name of a module is its dotted path in the network. The network itself has the name "".

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> output, recorded = record(network, lambda: network(torch.zeros(1, 2)))
    >>> recorded.output("0").shape, recorded.inside("1").output("") is output
    (torch.Size([1, 3]), True)
    """

    def __init__(self, calls: Mapping[str, Call], path: str = ""):
        self.calls = calls
        self.path = path

    def name(self, module: str) -> str:
        """Return the path of a module from the root of the network.

        `module`: path relative to the root of this recording.
        """
        return ".".join(filter(None, [self.path, module]))

    def inside(self, module: str) -> Recording:
        """Return the recording of one module and its submodules, with paths relative to this module."""
        return Recording(self.calls, self.name(module))

    def ran(self, module: str) -> bool:
        """Return True if the module ran in the forward pass."""
        return self.name(module) in self.calls

    def call(self, module: str) -> Call:
        """Return the first call of a module. Raise KeyError if the module did not run."""
        return self.calls[self.name(module)]

    def output(self, module: str) -> Any:
        """Return the output of the first call of a module."""
        return self.call(module).output


def record(network: nn.Module, run: Callable[[], Any]) -> tuple[Any, Recording]:
    """Call the function `run` without gradients.

    Return the result of `run`, and a recording of the modules of `network` that were called.
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
    return result, Recording(calls)


def as_array(values: Tensor) -> np.ndarray:
    """Convert a tensor to a float32 array, or to an int64 array if the tensor has integers."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values.long()).numpy()


class BatchView(NamedTuple):
    """The input batch of a network.

    `lengths`: (B,) number of tokens of each row. `tokens`: one list of token texts for each row, or `None` if tokens
    are vectors.
    """

    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None


class Outputs(NamedTuple):
    """The outputs of an encoder.

    `values`: (B, T', D) output vectors. T' may be smaller than the number of tokens. `lengths`: (B,) number of output
    vectors of each row. `parts`: named ranges of channels, such as the forward direction. `channels`: (M,) indices of
    the channels to show.
    """

    values: np.ndarray
    lengths: np.ndarray
    parts: Sequence[Part]
    channels: np.ndarray


def token_vectors(
    values: np.ndarray, lengths: np.ndarray, tokens: Sequence[Sequence[str]] | None, parts: Sequence[Part] = ()
) -> TokenVectors:
    """Return token vectors as the content of a stage. The stage shows the channels that vary most."""
    parts = parts or [Part("", 0, values.shape[-1])]
    return TokenVectors(values, lengths, varying_channels(values, lengths, parts), parts, tokens)
