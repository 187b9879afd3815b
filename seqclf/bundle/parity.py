"""Parity of the exported model with PyTorch, on a grid of batch sizes, widths and length patterns.

`parity.npz` holds `<cell>/<input>` and PyTorch's `<cell>/logits` for every cell, so that any machine can repeat the
check without PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqclf.system.json_result import JsonResult

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


@dataclass(frozen=True, kw_only=True)
class Parity(JsonResult):
    """Differences between the exported model and PyTorch: content of `parity.json`.

    `cells`: the error of each, which is the largest absolute difference, divided by the largest logit of the cell where
    that exceeds 1. `max_error`: the largest of them. `passed`: it is at most `tolerance`.
    """

    passed: bool
    max_error: float
    tolerance: float
    cells: dict[str, float]


def check(session: Any, path: Path) -> Parity:
    """Run every cell of a `parity.npz` through an ONNX Runtime session."""
    cells: dict[str, dict[str, np.ndarray]] = {}
    # A parity file may come from anywhere, and unpickling runs code.
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            cell, name = key.split("/", 1)
            cells.setdefault(cell, {})[name] = stored[key]
    errors = {}
    for cell, arrays in cells.items():
        expected = arrays.pop("logits")
        logits = session.run(["logits"], arrays)[0]
        error = np.abs(logits - expected).max() / max(1.0, np.abs(expected).max())
        # NaN compares as False with everything, so it would pass as the smaller error.
        errors[cell] = float(error) if np.isfinite(error) else float("inf")
    worst = max(errors.values())
    return Parity(passed=worst <= TOLERANCE, max_error=worst, tolerance=TOLERANCE, cells=errors)
