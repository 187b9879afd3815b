"""What stands out in an epoch, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from seqclf.evaluation.alarms import alarms

PATIENCE = 3  # epochs in a row that make a trend
NOTICED = 0.001


def epoch_note(
    row: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    found: Mapping[str, Any] | None,
    classes: list[str],
    positive: str | None,
    monitor: str,
) -> str:
    """`row`: the record of an epoch, after those of `earlier` ones; `found`: its validation scores, if it had some;
    `monitor`: the one that decides which epoch is best."""
    if found is None or "validation/recall" not in row:
        return "not validated"
    raised = alarms(dict(found), classes, positive)
    if raised:
        return raised[0].text
    name, sign = monitor.replace("_", " "), -1 if monitor == "loss" else 1
    known = [entry for entry in (*earlier, row) if entry.get(f"validation/{monitor}") not in (None, "")]
    if not known or known[-1] is not row:
        return f"{name} is not defined on validation"
    past = known[:-1]
    if not past:
        return "first epoch"
    values = [sign * float(entry[f"validation/{monitor}"]) for entry in known]
    best = max(values[:-1])
    if values[-1] > best:
        return f"best {name} so far"
    recent = [*past, row][-PATIENCE - 1 :]
    if len(recent) > PATIENCE and _climbs(recent, "validation/loss", 1) and _climbs(recent, "train/loss", -1):
        return "validation loss rises while training's falls: it learns the rows by heart"
    since = next(age for age, value in enumerate(reversed(values[:-1]), 1) if value == best)
    return f"{name} no better for {since} epoch{'s' if since > 1 else ''}"


def _climbs(rows: Sequence[Mapping[str, Any]], name: str, sign: int) -> bool:
    values = [sign * float(row[name]) for row in rows]
    return all(later > sooner + NOTICED for sooner, later in pairwise(values))
