"""The decision and the halting threshold that a run chose for one of its checkpoints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

from seqclf.errors import InputError
from seqclf.evaluation.decisions.decision import Decision


class ChosenRule(NamedTuple):
    """`decision`: see `Decision`. `threshold`: halting threshold, which is infinite if a network reads all tokens."""

    decision: Decision
    threshold: float


def chosen_rule(checkpoint: Path, trained_steps: int, *, is_refitted: bool) -> ChosenRule:
    """Read metrics.json in the run folder of a checkpoint.

    `trained_steps`: number of optimizer steps that the checkpoint was trained for. `is_refitted`: True if it was
    trained on validation rows too. If the file is missing, damaged or of another checkpoint, the decision is argmax,
    because a walkthrough needs only the checkpoint. A damaged decision raises InputError, because predicted labels
    would then follow a wrong rule.
    """
    try:
        metrics = json.loads((checkpoint.absolute().parent.parent / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        metrics = {}
    if not isinstance(metrics, dict) or (metrics.get("step"), "refit" in metrics) != (trained_steps, is_refitted):
        return ChosenRule(Decision(), math.inf)
    halting = metrics.get("halting")
    threshold = halting.get("threshold") if isinstance(halting, dict) else None
    if not isinstance(threshold, float) or threshold < 0:
        threshold = math.inf
    try:
        return ChosenRule(Decision.from_dict(metrics["decision"]), threshold)
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "metrics.json of the run", "its decision cannot be read", "remove the file, or train again"
        ) from None
