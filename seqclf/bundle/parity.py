"""The proof that the exported model computes what the trained one did: PyTorch's logits beside its inputs.

`parity.npz` holds `<cell>/<input>` and `<cell>/logits` for every cell of a grid of batch sizes, times and length
patterns; any machine can repeat the check from it without PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-5
BATCHES = (1, 2, 5, 16)
TIMES = (1, 2, 13, 48)


def grid(generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray, int]]:
    """Cells as (name, lengths (B,), T): all lengths equal to T, all equal and shorter, and as different as T allows."""
    for batch, time in itertools.product(BATCHES, TIMES):
        patterns = {"full": np.full(batch, time)}
        if time > 1:
            patterns["short"] = np.full(batch, (time + 1) // 2)
        if time > 1 and batch > 1:
            spread = np.linspace(1, time, batch).round().astype(np.int64)
            patterns["different"] = generator.permutation(spread)
        for name, lengths in patterns.items():
            yield f"B{batch}_T{time}_{name}", lengths, time


def check(session: Any, path: Path) -> dict[str, Any]:
    """Run every cell of a `parity.npz` through an ONNX Runtime session.

    Returns `max_error`, `tolerance`, `passed` and the error of each cell. The error is absolute, relative to the
    largest logit of the cell where that is above 1.
    """
    cells: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            cell, name = key.split("/", 1)
            cells.setdefault(cell, {})[name] = stored[key]
    errors = {}
    for cell, arrays in cells.items():
        expected = arrays.pop("logits")
        logits = session.run(["logits"], arrays)[0]
        error = np.abs(logits - expected).max() / max(1.0, np.abs(expected).max())
        errors[cell] = float(error) if np.isfinite(error) else float("inf")
    worst = max(errors.values())
    return {"passed": worst <= TOLERANCE, "max_error": worst, "tolerance": TOLERANCE, "cells": errors}
