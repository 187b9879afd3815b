"""Parity of the exported model with PyTorch, on a grid of batch sizes, widths and length patterns.

`parity.npz` holds `<cell>/<input>` and PyTorch's `<cell>/logits` for every cell, so that any machine can repeat the
check without PyTorch. A model that also reads by chunks is compared with the same logits.
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

CHUNKS = (1, 5, 16)  # tokens that the cells are read by in turn


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


def check(session: Any, path: Path, step: StepModel | None = None) -> Parity:
    """Run every cell of a `parity.npz` through a session of the model.

    `step`: the model that reads by chunks, in which every cell must give the same logits, as `<cell>_chunks`.
    """
    cells: dict[str, dict[str, np.ndarray]] = {}
    # A parity file may come from anywhere, and unpickling runs code.
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            cell, name = key.split("/", 1)
            cells.setdefault(cell, {})[name] = stored[key]
    errors = {}
    for index, (cell, arrays) in enumerate(cells.items()):
        expected = arrays.pop("logits")
        errors[cell] = logit_error(session.run(["logits"], arrays)[0], expected)
        if step is not None:
            chunk = CHUNKS[index % len(CHUNKS)]
            with explain_run_errors(STEP):
                read = read_chunks(step, arrays, arrays.pop("lengths"), chunk)
            errors[f"{cell}_chunks"] = logit_error(read.logits, expected)
    worst = max(errors.values())
    return Parity(passed=worst <= TOLERANCE, max_error=worst, tolerance=TOLERANCE, cells=errors)
