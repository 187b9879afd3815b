"""Notes on an epoch in a few words: alarms, trends, and whether it is the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.epoch_choice import epoch_value
from seqclf.evaluation.metric_names import metric_title
from seqclf.evaluation.metrics import ConfusionMetrics

TREND = 3  # epochs in a row that make a trend
NOTICEABLE = 0.001  # change of a loss that counts


def epoch_note(
    row: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    metrics: ConfusionMetrics | None,
    classes: list[str],
    positive: str | None,
    monitor: str,
) -> str:
    """A note on the epoch `row` of metrics.csv.

    `earlier`: the rows before it. `metrics`: those of its validation, if there was one. `monitor`: the validation
    metric that decides which epoch is best.
    """
    if metrics is None or "validation/recall" not in row:
        return "not validated"
    alarms = find_alarms(metrics, classes, positive)
    if alarms:
        return alarms[0].text  # a class that is never predicted matters more than any trend
    name, sign = metric_title(monitor), -1 if monitor == "loss" else 1
    validated = [epoch for epoch in (*earlier, row) if epoch.get(f"validation/{monitor}") not in (None, "")]
    if not validated or validated[-1] is not row:
        return f"{name} is not defined on validation"
    past = validated[:-1]
    if not past:
        return "first epoch"
    values = [sign * float(epoch[f"validation/{monitor}"]) for epoch in validated]
    best = max(values[:-1])
    if values[-1] > best:
        return f"best {name} so far"
    choices = [_choice_value(epoch, monitor) for epoch in validated]
    if choices[-1] > max(choices[:-1]):
        return f"as good as the best {name}, at a lower loss"  # the best epoch so far, as `epoch_value` chooses it
    recent = [*past, row][-TREND - 1 :]
    if len(recent) > TREND and _rises(recent, "validation/loss", 1) and _rises(recent, "train/loss", -1):
        return "overfitting: validation loss rises while training loss falls"
    # Since the best value was first reached. A later epoch that ties with it does not make the count start anew: with
    # few validation rows ties are common, and every plateau would read "for 1 epoch".
    age = len(values) - 1 - values.index(best)
    return f"{name} no better for {age} epoch{'s' if age > 1 else ''}"


def _choice_value(row: Mapping[str, Any], monitor: str) -> float:
    return epoch_value({name: float(row[f"validation/{name}"]) for name in ("loss", monitor)}, monitor)


def _rises(rows: Sequence[Mapping[str, Any]], name: str, sign: int) -> bool:
    """Return True if a loss rises (`sign` 1) or falls (-1) noticeably from each row to the next."""
    values = [sign * float(row[name]) for row in rows]
    return all(later > earlier + NOTICEABLE for earlier, later in pairwise(values))
