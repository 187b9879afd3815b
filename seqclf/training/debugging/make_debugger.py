"""The callback of a debug choice that watches a usual training."""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.data.storage.ragged import Split
from seqclf.training.debugging.anomaly_trace import AnomalyTrace
from seqclf.training.debugging.debugger import Debugger
from seqclf.training.debugging.finite_check import FiniteCheck


def make_debugger(name: str, splits: Mapping[str, Split]) -> Debugger | None:
    """Return the callback of `debug=name`, None where nothing is watched. `splits`: by name, to name their rows.

    >>> make_debugger("none", {}) is None
    True
    """
    if name == "nan":
        return FiniteCheck(splits)
    return AnomalyTrace() if name == "anomaly" else None
