"""The metric of a search, and the settings that all of its trials share."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from seqclf.errors import InputError
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.split_result import SplitResult
from seqclf.settings.typed_text import did_you_mean

# Settings of all trials: no bundle and no baseline. With `provisional`, the rows that are held out for a guarantee have
# no influence on the best settings; all trials must hold out the same ones.
OF_TRIALS = {"export": False, "baseline": False, "decision.provisional": True}
SCORES: dict[str, Any] = {"validation": SplitResult, "test": SplitResult, "calibration": Calibration}


def require_metric(name: str) -> str:
    """Return the name of a metric. Raises InputError if its first two parts name no scores of metrics.json.

    >>> require_metric("validation.positive.average_precision")
    'validation.positive.average_precision'
    """
    split, _, metric = name.partition(".")
    known = [field.name for field in fields(SCORES[split])] if split in SCORES else []
    if (first := metric.partition(".")[0]) not in known:
        remedy = did_you_mean(first, known) or f"write one of {', '.join(known) or 'validation.recall'}"
        raise InputError(f"search.metric={name}", "metrics.json has no such number", remedy)
    return name
