"""The result of the run that a checkpoint belongs to."""

from __future__ import annotations

from pathlib import Path

from seqclf.evaluation.run_result import RunResult
from seqclf.system.state_validation import error_context, read_json


def result_of(checkpoint: Path, trained_steps: int) -> RunResult | None:
    """Return the result in the run folder of a checkpoint, or None if there is none of this checkpoint.

    `trained_steps`: number of optimizer steps that the checkpoint was trained for. A damaged result raises InputError,
    as labels would follow a wrong decision.
    """
    path = checkpoint.absolute().parent.parent / "metrics.json"
    if not path.is_file():
        return None
    with error_context("metrics.json of the run", "remove the file, or train again"):
        result = RunResult.from_dict(read_json(path))
    return result if result.trained_steps == trained_steps else None
