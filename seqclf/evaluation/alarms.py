"""Alarms: accuracy that hides a low recall, classes that are never predicted, models no better than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.intervals import Interval
from seqclf.evaluation.metrics import ConfusionMetrics
from seqclf.system.json_result import JsonResult

HIGH_ACCURACY = 0.75  # accuracy from which on a low recall counts as hidden
LOW_RECALL = 0.5  # recall below this share of the accuracy is low
CONFIDENCE = 0.95
ONE_SIDED = 1.645  # standard deviations, the normal quantile of that confidence
MAX_NAMED = 5
MIN_ROWS = 5  # rows of a class that an alarm may be about, except the positive one
LEARN_MORE = "more epochs (trainer.max_epochs), another learning rate (optimizer.lr) or another model"
CHANCE = "no_better_than_chance"
NOT_BETTER = "not_better_than_baseline"
USELESS_ALERTS = "useless_alerts"
NO_POSITIVE = "no_positive_rows"
LITTLE_GAIN = 0.1  # of the way from the precision of random alerts to that of perfect ones
NO_CORRELATION = 0.1  # Matthews' correlation below this is hardly better than a constant answer


@dataclass(frozen=True)
class Alarm(JsonResult):
    """An alarm about the metrics of a split.

    `kind`: no_positive_rows, never_predicted, no_better_than_chance, hidden_recall, useless_alerts, below_majority, or
    not_better_than_baseline (see `recommendation.baseline_alarm`). `remedy`: what to try.
    """

    kind: str
    text: str
    remedy: str


def find_alarms(
    metrics: ConfusionMetrics,
    classes: list[str],
    positive: str | None,
    has_targets: bool = False,
    auroc: Interval = None,
) -> list[Alarm]:
    """Alarms about the metrics of a split, the gravest first.

    `has_targets`: the decision has a target (conf/decision), so that accuracy may have been traded for recall. `auroc`:
    interval of the AUROC of the positive label, None where it is not known.

    >>> from seqclf.evaluation.metrics import confusion_metrics
    >>> metrics = confusion_metrics(np.array([[9780, 20], [176, 24]]), ["no", "yes"])
    >>> [alarm.text for alarm in find_alarms(metrics, ["no", "yes"], positive="yes")]
    ['accuracy 98.0% hides the recall of yes 12.0% of 200']
    """
    support, recall = metrics.support_by_class, metrics.recall_by_class
    present = [label for label in classes if support[label]]
    rows = sum(support.values())
    if positive is not None and rows and not support[positive]:
        text = f"none of the {rows:,} rows is {positive}: its recall is unknown"
        return [Alarm(NO_POSITIVE, text, f"more rows of {positive}, or a larger share (data.split)")]
    if len(present) < 2:
        return []
    predicted = dict(zip(classes, np.sum(metrics.confusion, axis=0).tolist(), strict=True))
    remedy = _remedy(positive)
    alarms = []
    # A class of very few rows may be missed by chance. The positive label is watched whatever its size.
    large = [label for label in present if support[label] >= MIN_ROWS or label == positive]
    never = [label for label in large if not predicted[label]]
    if never:
        missed = sum(support[label] for label in never)
        verb = "is" if len(never) == 1 else "are"
        text = f"{_join_labels(never)} {verb} never predicted: all {missed:,} such rows are missed"
        alarms.append(Alarm("never_predicted", text, remedy))
    watched = [label for label in ([positive] if positive in present else large) if label not in never]
    # A random choice of as many rows has an expected recall equal to the share of rows that are predicted as the label.
    chance = [
        label
        for label in watched
        if support[label] >= MIN_ROWS and recall[label] <= predicted[label] / rows and predicted[label] < rows
    ]
    if chance:
        details = "; ".join(
            f"recall of {label} {recall[label]:.1%}, while {predicted[label] / rows:.1%} of all rows are given it"
            for label in chance[:MAX_NAMED]
        )
        alarms.append(Alarm(CHANCE, f"no better than picking rows at random: {details}", LEARN_MORE))
    elif (doubt := _like_chance(metrics, present, positive, auroc)) is not None:
        alarms.append(Alarm(CHANCE, f"not shown to be better than chance: {doubt}", LEARN_MORE))
    hidden = [label for label in watched if label not in chance and _is_hidden(metrics, label)]
    if hidden:
        details = "; ".join(f"{label} {recall[label]:.1%} of {support[label]:,}" for label in hidden[:MAX_NAMED])
        alarms.append(Alarm("hidden_recall", f"accuracy {metrics.accuracy:.1%} hides the recall of {details}", remedy))
    if has_targets and positive is not None and not chance:
        alarms += _useless_alerts(metrics, classes.index(positive), positive)
    if not has_targets and (alarm := _below_majority(metrics, present, rows)) is not None:
        alarms.append(alarm)
    return alarms


def _like_chance(metrics: ConfusionMetrics, present: list[str], positive: str | None, auroc: Interval) -> str | None:
    """Return why a model may know nothing of the labels, None if it is shown to know something.

    A recall above its share of alerts is no proof: half of all random guesses are. With a positive label its ranking is
    tested, as a threshold far from the middle leaves few errors to count. Else the hits are compared with those of the
    same predictions in random order.
    """
    support = metrics.support_by_class
    if sum(support[label] >= MIN_ROWS for label in present) < 2:
        return None
    if positive is not None:
        if auroc is None or auroc[0] > 0.5:
            return None
        return f"the interval of the AUROC of {positive} is {auroc[0]:.3f} to {auroc[1]:.3f}, and 0.5 is chance"
    confusion = np.array(metrics.confusion, np.float64)
    expected, deviation = _random_hits(confusion)
    hits, rows = int(np.trace(confusion)), int(confusion.sum())
    if not deviation or hits - expected > ONE_SIDED * deviation:
        return None
    return f"{hits:,} of {rows:,} rows are right; about {expected:,.0f} would be with its predictions in random order"


def _random_hits(confusion: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the hits if predictions are permuted, as in the test of Cohen's kappa."""
    truth, predicted, rows = confusion.sum(axis=1), confusion.sum(axis=0), confusion.sum()
    pairs = truth @ predicted
    variance = (pairs**2 + rows**2 * pairs - rows * (truth * predicted) @ (truth + predicted)) / (rows**2 * (rows - 1))
    # Rounding errors may leave a little where all rows are given the same label.
    return float(pairs / rows), float(np.sqrt(variance)) if variance > 1e-9 else 0.0


def _is_hidden(metrics: ConfusionMetrics, label: str) -> bool:
    """True if a high accuracy hides a recall that is low beyond chance (one-sided binomial test)."""
    from scipy.stats import binomtest

    recall, support = metrics.recall_by_class[label] or 0.0, metrics.support_by_class[label]
    low = LOW_RECALL * metrics.accuracy
    if metrics.accuracy < HIGH_ACCURACY or recall >= low:
        return False
    return bool(binomtest(round(recall * support), support, low, "less").pvalue < 1 - CONFIDENCE)


def _useless_alerts(metrics: ConfusionMetrics, index: int, positive: str) -> list[Alarm]:
    """Alarm about a threshold whose alerts hold hardly more positive rows than as many random ones would.

    Either chance explains the hits (hypergeometric test), or most rows are alerts and the precision gains little.
    """
    from scipy.stats import hypergeom

    confusion = np.array(metrics.confusion)
    rows, positives = int(confusion.sum()), int(confusion[index].sum())
    alerts, hits = int(confusion[:, index].sum()), int(confusion[index, index])
    if not hits:
        return []
    precision, base_rate = hits / alerts, positives / rows
    gain = (precision - base_rate) / (1 - base_rate)
    by_chance = hypergeom.sf(hits - 1, rows, positives, alerts) > 1 - CONFIDENCE
    if not by_chance and (alerts <= rows / 2 or gain >= LITTLE_GAIN):
        return []
    text = (
        f"the alerts are hardly better than random ones: {alerts:,} of {rows:,} rows are alerts, of which "
        f"{precision:.1%} are {positive}, and {base_rate:.1%} of all rows are"
    )
    remedy = (
        f"a lower target, correct labels, or more rows of {positive} (the lowest scores among few set the threshold)"
    )
    return [Alarm(USELESS_ALERTS, text, remedy)]


def _below_majority(metrics: ConfusionMetrics, present: list[str], rows: int) -> Alarm | None:
    largest = max(present, key=lambda label: metrics.support_by_class[label])
    share = metrics.support_by_class[largest] / rows
    # A model may give up accuracy for rare classes. Matthews' correlation shows that it has learned something.
    if metrics.accuracy > share or metrics.mcc >= NO_CORRELATION:
        return None
    text = f"accuracy {metrics.accuracy:.1%} is no more than always saying {largest} would reach ({share:.1%})"
    return Alarm("below_majority", text, LEARN_MORE)


def _remedy(positive: str | None) -> str:
    if positive is not None:
        return "decision.min_recall=0.8, loss=balanced or batching=balanced"
    return "loss=balanced or batching=balanced, or a target: 'decision.min_recall={LABEL: 0.8}'"


def _join_labels(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    return ", ".join(labels[:MAX_NAMED]) + more
