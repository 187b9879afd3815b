"""Batches of different shapes, for comparing the outputs of an exported model with the outputs of PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

TOLERANCE = 1e-5  # maximum logit error; PyTorch and ONNX Runtime add float32 numbers in different orders
# A size of 1 is included, because the export may have fixed or removed an axis of size 1.
BATCHES = (1, 2, 5, 16)
TIMES = (1, 2, 13, 48)


def grid(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield a name, the lengths (B,) and the padded length T of batches: all lengths T, all below, or spread to T."""
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
    """Return the error max |logits - expected| / max(1, max |expected|), or inf if the error is not finite."""
    error = np.abs(logits - expected).max() / max(1.0, np.abs(expected).max())
    # Return inf instead of NaN. Every comparison with NaN is False, so the test `error > tolerance` would accept NaN.
    return float(error) if np.isfinite(error) else float("inf")
