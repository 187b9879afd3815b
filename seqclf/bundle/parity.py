"""Parity check: compare the exported model with PyTorch, on a grid of batch sizes, widths and length patterns.

`parity.npz` holds for each cell, a batch, the inputs `<cell>/<input>` and PyTorch's outputs, such as `<cell>/logits`,
so that the check can be repeated without PyTorch, also for the model that reads chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqclf.bundle.session import explain_run_errors
from seqclf.bundle.step_model import STEP, StepModel, read_chunks
from seqclf.models.onnx.checks import TOLERANCE, logit_error
from seqclf.system.json_result import JsonResult

MAX_OTHER_ROWS = 0.01
CHUNKS = (1, 5, 16)  # chunk sizes in tokens; the cells use these sizes in turn


@dataclass(frozen=True, kw_only=True)
class Parity(JsonResult):
    """Differences between the exported model and PyTorch: the content of `parity.json`.

    `cells`: dict name of a cell → largest absolute difference of a logit, divided by the largest logit if that exceeds
    1, and so on for other outputs. `max_error`: largest of all cells. `other_rows`: fraction of rows with another
    integer output, whose logits are not compared: rounding may decide at which token a sequence halts. `passed`: True
    if `max_error` is at most `tolerance`, and `other_rows` at most `MAX_OTHER_ROWS`.
    """

    passed: bool
    max_error: float
    tolerance: float
    other_rows: float = 0.0
    cells: dict[str, float]


def read_cells(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each cell of `parity.npz`: dict cell → dict input or output → array."""
    cells: dict[str, dict[str, np.ndarray]] = {}
    # The file may come from an untrusted source, and unpickling can run any code.
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            cell, name = key.split("/", 1)
            cells.setdefault(cell, {})[name] = stored[key]
    return cells


def check(session: Any, path: Path, step: StepModel | None = None) -> Parity:
    """Run every cell of `parity.npz` through a session of the model, and compare the outputs.

    `step`: model that reads chunks, or None, with an entry `<cell>_chunks` for its error.
    """
    errors, same = dict[str, float](), list[np.ndarray]()
    names = [entry.name for entry in session.get_outputs()]
    for index, (cell, arrays) in enumerate(read_cells(path).items()):
        expected = {name: arrays.pop(name) for name in names}
        runs = {cell: dict(zip(names, session.run(names, arrays), strict=True))}
        if step is not None:
            with explain_run_errors(STEP):
                read = read_chunks(step, arrays, arrays.pop("lengths"), CHUNKS[index % len(CHUNKS)])
            by_chunks = {"logits": read.logits, **read.extra}
            runs[f"{cell}_chunks"] = {name: by_chunks[name] for name in names if name in by_chunks}
        for name, found in runs.items():
            errors[name], is_same = _compare(found, expected)
            same.append(is_same)
    worst, other_rows = max(errors.values()), 1 - float(np.concatenate(same).mean())
    passed = worst <= TOLERANCE and other_rows <= MAX_OTHER_ROWS
    return Parity(passed=passed, max_error=worst, tolerance=TOLERANCE, other_rows=other_rows, cells=errors)


def _compare(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the largest error of the rows with equal integer outputs, and the mask (B,) of these rows."""
    is_integer = {name: expected[name].dtype.kind in "biu" for name in found}
    is_same = np.ones(len(expected["logits"]), bool)
    for name in found:
        if is_integer[name]:
            is_same &= (found[name] == expected[name]).reshape(len(is_same), -1).all(axis=1)
    numbers = [name for name in found if is_same.any() and not is_integer[name]]
    return max((logit_error(found[name][is_same], expected[name][is_same]) for name in numbers), default=0.0), is_same
