"""Modes and length distributions that a benchmark compares. This module does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DrawLengths = Callable[[np.random.Generator, int], np.ndarray]
# The distributions of sequence lengths are sorted by the amount of padding in static graphs, from no padding to much
# padding. Lengths are bounded, so that batches padded to the maximum length fit in memory.
LENGTH_DISTRIBUTIONS: dict[str, DrawLengths] = {
    "equal": lambda generator, count: np.full(count, 50),
    "uniform": lambda generator, count: generator.integers(2, 101, count),
    "log_normal": lambda generator, count: np.clip(np.exp(generator.normal(3.5, 0.8, count)), 2, 400),
    "heavy_tailed": lambda generator, count: np.clip(8 * (1 + generator.pareto(1.1, count)), 2, 800),
}


class Mode(NamedTuple):
    """A way to compute batches in a benchmark.

    `layout`: layout of recurrent layers, "padded" or "packed". Encoders without recurrent layers have no layout and
    always get padded batches. `static`: True to pad every batch to the longest sequence of the workload, False to pad a
    batch to its own longest sequence. `compiled`: True to compile the model with `torch.compile` for fixed shapes.
    """

    layout: str
    static: bool
    compiled: bool = False


MODES = {
    "dynamic": Mode("padded", static=False),  # the mode that training uses by default
    "packed": Mode("packed", static=False),  # PyTorch's layout for sequences of unequal lengths
    "static": Mode("padded", static=True),  # reference for the time ratios
    "compiled": Mode("padded", static=True, compiled=True),  # the faster of the two modes with fixed shapes
}
