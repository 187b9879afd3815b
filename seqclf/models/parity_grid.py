"""Batch sizes, widths and length patterns on which an exported model is compared with PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

TOLERANCE = 1e-5  # float32 kernels of both runtimes add in different orders
# Sizes of 1 reveal dimensions that the export has fixed or squeezed.
BATCHES = (1, 2, 5, 16)
TIMES = (1, 2, 13, 48)


def grid(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray, int]]:
    """Cells (name, lengths (B,), T) of the grid.

    The lengths are all equal to T, all equal and shorter, or as different as T allows.
    """
    for batch, time in itertools.product(BATCHES, TIMES):
        patterns = {"full": np.full(batch, time)}
        if time > 1:
            patterns["short"] = np.full(batch, (time + 1) // 2)
        if time > 1 and batch > 1:
            spread = np.linspace(1, time, batch).round().astype(np.int64)
            patterns["different"] = generator.permutation(spread)
        for name, lengths in patterns.items():
            yield f"B{batch}_T{time}_{name}", lengths, time


def logit_error(logits: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of two arrays of logits, over the largest expected one where that exceeds 1."""
    error = np.abs(logits - expected).max() / max(1.0, np.abs(expected).max())
    # NaN compares as False with everything, so it would pass as the smaller error.
    return float(error) if np.isfinite(error) else float("inf")
