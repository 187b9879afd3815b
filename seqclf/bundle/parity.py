"""Parity check: compare the exported model with PyTorch, on a grid of batch sizes, widths and length patterns.

`parity.npz` holds for each cell, a batch, the inputs `<cell>/<input>` and PyTorch's logits `<cell>/logits`, so that the
check can be repeated without PyTorch, also for the model that reads chunks.
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

    `cells`: dict name of a cell → largest absolute difference of a logit, divided by the largest logit if that exceeds
    1. `max_error`: largest of all cells. `passed`: True if it is at most `tolerance`.
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

    `step`: model that reads chunks, or None, with an entry `<cell>_chunks` for its error.
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
