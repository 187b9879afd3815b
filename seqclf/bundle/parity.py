"""Parity check: compare the exported model with PyTorch, on a grid of batch sizes, widths and length patterns.

A cell of the grid is one batch. `parity.npz` holds two kinds of arrays for each cell: the inputs `<cell>/<input>`, and
PyTorch's logits `<cell>/logits`. With this file, the check can be repeated without PyTorch. If the bundle also has a
model that reads chunks, that model must give the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqclf.bundle.session import explain_run_errors
from seqclf.bundle.step_model import STEP, StepModel, read_chunks
from seqclf.models.parity_grid import TOLERANCE, logit_error
from seqclf.system.json_result import JsonResult

CHUNKS = (1, 5, 16)  # chunk sizes in tokens; the cells use these sizes in turn


@dataclass(frozen=True, kw_only=True)
class Parity(JsonResult):
    """Differences between the exported model and PyTorch: the content of `parity.json`.

    `cells`: dict name of a cell → error. The error of a cell is the largest absolute difference between a logit and
    PyTorch's logit. If a logit of the cell exceeds 1, the error is divided by the largest logit. `max_error`: largest
    error of all cells. `passed`: True if `max_error` is at most `tolerance`.
    """

    passed: bool
    max_error: float
    tolerance: float
    cells: dict[str, float]


def read_cells(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each cell of `parity.npz`: dict cell → dict input, or `logits` → array."""
    cells: dict[str, dict[str, np.ndarray]] = {}
    # The file may come from an untrusted source, and unpickling can run any code.
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            cell, name = key.split("/", 1)
            cells.setdefault(cell, {})[name] = stored[key]
    return cells


def check(session: Any, path: Path, step: StepModel | None = None) -> Parity:
    """Run every cell of `parity.npz` through a session of the model, and compare the logits.

    `step`: model that reads chunks, or None. The result has an extra entry `<cell>_chunks` for the error of this model.
    """
    errors = {}
    for index, (cell, arrays) in enumerate(read_cells(path).items()):
        expected = arrays.pop("logits")
        errors[cell] = logit_error(session.run(["logits"], arrays)[0], expected)
        if step is not None:
            chunk = CHUNKS[index % len(CHUNKS)]
            with explain_run_errors(STEP):
                read = read_chunks(step, arrays, arrays.pop("lengths"), chunk)
            errors[f"{cell}_chunks"] = logit_error(read.logits, expected)
    worst = max(errors.values())
    return Parity(passed=worst <= TOLERANCE, max_error=worst, tolerance=TOLERANCE, cells=errors)
