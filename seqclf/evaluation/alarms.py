"""Alarms about a model: hidden low recalls, classes that are never predicted, scores no better than chance.

An alarm rests on a statistical test of the hypothesis that the model is healthy, so a small split rarely raises a false
one. The levels of all tests of a model add up to 5 %. An alert for a label is a row that is predicted as this label.
`tests/evaluation/test_alarm_rates.py` simulates healthy and faulty models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.evaluation.intervals import Interval, interval_text
from seqclf.evaluation.metrics import ConfusionMetrics
from seqclf.system.json_result import JsonResult

HIGH_ACCURACY = 0.75  # minimum accuracy for the alarm hidden_recall
LOW_RECALL = 0.5  # a recall below this fraction of the accuracy is low
CONFIDENCE = 0.95
ONE_SIDED = 1.645  # one-sided 95 % quantile of the normal distribution, in standard deviations
# Significance level of each of three tests: of low recalls, of labels predicted at random, and of all labels together.
# The confidence interval of the AUROC may replace the last two tests. Each tail of this interval is 2.5 %.
LEVEL = 0.0125
# The weakest model that still counts as healthy predicts 60 % of the rows of each of two classes correctly.
HEALTHY_ODDS = 2.25  # odds ratio: odds of an alert on a positive row / odds of an alert on a negative row
HEALTHY_AGREEMENT = 0.2  # minimum Cohen's kappa of a healthy model
# Minimum AUROC of a healthy model, slightly below 0.64, which normally distributed scores would give.
HEALTHY_AUROC = 0.62
MAX_NAMED = 5
# Remedies for a model that learned little, and for one that knows its training rows, of which more epochs are no use.
KNOWN_RECALL = 0.9  # minimum macro recall on training rows that are known
REGULARIZE = "more data, more dropout (model.dropout), a larger optimizer.weight_decay or a smaller model"
LEARN_MORE = "more epochs (trainer.max_epochs), another learning rate (optimizer.lr) or another model"
CHANCE = "no_better_than_chance"
NOT_BETTER = "not_better_than_baseline"
WEAK_THRESHOLD = "not_better_at_threshold"
USELESS_ALERTS = "useless_alerts"
NO_POSITIVE = "no_positive_rows"
# Fraction of the largest possible gain in precision over random alerts; a smaller gain counts as little.
LITTLE_GAIN = 0.1
GOOD_F1 = 0.7  # if argmax reaches this F1 for a label, argmax predicts the label well
RUINED_ACCURACY = 0.1  # thresholds that lower the accuracy by this much ruin the model
UNBALANCED = 1.5  # up to this ratio of the largest to the smallest class, classes count as balanced
NO_CORRELATION = 0.1  # minimum Matthews' correlation of a model that is better than a constant answer


@dataclass(frozen=True)
class Alarm(JsonResult):
    """An alarm about the metrics of a split. `remedy`: settings to try. `label`: the one whose alerts are useless, or
    None.

    `kind`: one of no_positive_rows, never_predicted, no_better_than_chance, hidden_recall, useless_alerts,
    below_majority, not_better_than_baseline and not_better_at_threshold (see `baseline_alarms`).
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"label"})

    kind: str
    text: str
    remedy: str
    label: str | None = None


def find_alarms(
    metrics: ConfusionMetrics,
    classes: list[str],
    positive: str | None,
    targets: Sequence[str] = (),
    auroc: Interval = None,
    argmax: ConfusionMetrics | None = None,
    effect: float = 1.0,
    few: Sequence[str] = (),
) -> list[Alarm]:
    """Return the alarms about the metrics of a split, the gravest alarm first.

    `targets`: labels for which `decision` sets a threshold, which may lower the accuracy. `auroc`: confidence
    interval of the AUROC of the positive label, or None. `argmax`: metrics of the same rows if the most probable label
    is predicted, None without targets. `effect`: design effect of the accuracy, which divides the row counts. `few`:
    labels whose threshold is set by too few rows.

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
    remedy = _remedy(positive, is_unbalanced(support), bool(targets))
    alarms = []
    counts = np.rint(np.array(metrics.confusion) / effect).astype(np.int64)
    low = _low_recalls(metrics, classes, present, counts)
    never = [label for label in low if not predicted[label]]
    if never:
        missed = sum(support[label] for label in never)
        verb = "is" if len(never) == 1 else "are"
        text = f"{_join_labels(never)} {verb} never predicted: all {missed:,} such rows are missed"
        alarms.append(Alarm("never_predicted", text, remedy))
    watched = [label for label in present if positive is None or label == positive or label in targets]
    # With random predictions, the expected recall of a label equals the fraction of rows predicted as that label.
    at_most_random = [label for label in watched if recall[label] <= predicted[label] / rows]
    like_chance = _like_chance(counts, classes, watched, {*at_most_random, *targets})
    chance = [label for label in like_chance if label in at_most_random]
    if chance:
        details = "; ".join(
            f"recall of {label} {recall[label]:.1%}, while {predicted[label] / rows:.1%} of all rows are given it"
            for label in chance[:MAX_NAMED]
        )
        alarms.append(Alarm(CHANCE, f"no better than picking rows at random: {details}", LEARN_MORE))
    elif (doubt := _knows_nothing(argmax or metrics, positive, auroc, effect)) is not None:
        alarms.append(Alarm(CHANCE, f"not shown to be better than chance: {doubt}", LEARN_MORE))
    hidden = [label for label in low if label in watched and label not in (*never, *chance)]
    if hidden and metrics.accuracy >= HIGH_ACCURACY:
        details = "; ".join(f"{label} {recall[label]:.1%} of {support[label]:,}" for label in hidden[:MAX_NAMED])
        alarms.append(Alarm("hidden_recall", f"accuracy {metrics.accuracy:.1%} hides the recall of {details}", remedy))
    for label in targets:
        if label in watched and label not in chance:
            alarms += _useless_alerts(metrics, classes, label, label in like_chance, argmax, label in few)
    if not targets and (alarm := _below_majority(metrics, present, rows, bool(never), counts)) is not None:
        alarms.append(alarm)
    return alarms


def _holm(p_values: np.ndarray) -> np.ndarray:
    """Return a mask of the hypotheses that Holm's procedure rejects at the joint significance level `LEVEL`."""
    order = np.argsort(p_values)
    is_small = p_values[order] <= LEVEL / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), bool)
    rejected[order] = np.logical_and.accumulate(is_small)
    return rejected


def _low_recalls(metrics: ConfusionMetrics, classes: list[str], present: list[str], counts: np.ndarray) -> list[str]:
    """Return the labels with a recall significantly below `LOW_RECALL` times the accuracy (one-sided binomial tests).

    `counts`: (C, C) confusion matrix, already divided by the design effect.
    """
    from scipy.stats import binom

    places = [classes.index(label) for label in present]
    hits, rows = np.diag(counts)[places], counts.sum(axis=1)[places]
    is_low = _holm(binom.cdf(hits, rows, LOW_RECALL * metrics.accuracy))
    return [label for label, low in zip(present, is_low, strict=True) if low]


def _like_chance(confusion: np.ndarray, classes: list[str], watched: list[str], suspects: set[str]) -> list[str]:
    """Return the labels of `watched` and `suspects` whose alerts look random.

    Fisher's exact test finds no association with their rows, and the odds ratio is significantly below `HEALTHY_ODDS`.
    """
    from scipy.stats import hypergeom, nchypergeom_fisher

    rows, p_values = int(confusion.sum()), np.ones(len(watched))
    for place, label in enumerate(watched):
        index = classes.index(label)
        hits, positives, alerts = confusion[index, index], confusion[index].sum(), confusion[:, index].sum()
        if label in suspects and hypergeom.sf(hits - 1, rows, positives, alerts) > 1 - CONFIDENCE:
            p_values[place] = nchypergeom_fisher.cdf(hits, rows, positives, alerts, HEALTHY_ODDS)
    return [label for label, rejected in zip(watched, _holm(p_values), strict=True) if rejected]


def _knows_nothing(metrics: ConfusionMetrics, positive: str | None, auroc: Interval, effect: float) -> str | None:
    """Return why the model seems to have learned nothing, or None.

    With a positive label by its AUROC, which no threshold moves, else by the hits against permuted predictions.
    """
    if positive is not None:
        if auroc is None or auroc[0] > 0.5 or auroc[1] >= HEALTHY_AUROC:
            return None
        return f"the interval of the AUROC of {positive} is {interval_text(auroc)}, and 0.5 is chance"
    confusion = np.array(metrics.confusion, np.float64)
    expected, deviation = _random_hits(confusion)
    hits, rows = int(np.trace(confusion)), int(confusion.sum())
    deviation *= effect**0.5
    if not deviation or hits - expected > ONE_SIDED * deviation or not _agrees_little(confusion / effect):
        return None
    return f"{hits:,} of {rows:,} rows are right; about {expected:,.0f} would be with its predictions in random order"


def _random_hits(confusion: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of the hits of randomly permuted predictions, as in Cohen's kappa test."""
    truth, predicted, rows = confusion.sum(axis=1), confusion.sum(axis=0), confusion.sum()
    pairs = truth @ predicted
    variance = (pairs**2 + rows**2 * pairs - rows * (truth * predicted) @ (truth + predicted)) / (rows**2 * (rows - 1))
    # If all rows are predicted as one label, the variance is 0 except for rounding errors.
    return float(pairs / rows), float(np.sqrt(variance)) if variance > 1e-9 else 0.0


def _agrees_little(confusion: np.ndarray) -> bool:
    """Return True if Cohen's kappa is significantly below `HEALTHY_AGREEMENT` (one-sided binomial test)."""
    from scipy.stats import binom

    rows = confusion.sum()
    by_chance = _random_hits(confusion)[0] / rows
    healthy = by_chance + HEALTHY_AGREEMENT * (1 - by_chance)
    return bool(binom.cdf(np.rint(np.trace(confusion)), np.rint(rows), healthy) <= LEVEL)


def _useless_alerts(
    metrics: ConfusionMetrics,
    classes: list[str],
    label: str,
    by_chance: bool,
    argmax: ConfusionMetrics | None,
    is_few: bool,
) -> list[Alarm]:
    """Return an alarm, or none, if the alerts of a label are hardly more precise than random alerts.

    They look random (`by_chance`), or gain little while most rows are alerts, or gain little and cost much accuracy
    although argmax predicts the label well. `is_few`: True if too few rows set the threshold.
    """
    index, confusion = classes.index(label), np.array(metrics.confusion)
    rows, positives = int(confusion.sum()), int(confusion[index].sum())
    alerts, hits = int(confusion[:, index].sum()), int(confusion[index, index])
    if not hits:
        return []
    precision, base_rate = hits / alerts, positives / rows
    remedy = (
        f"more rows of {label} to set the threshold, and correct labels of those with the lowest scores"
        if is_few
        else f"an easier target, correct labels of {label}, or {LEARN_MORE}"
    )
    gains_little = precision - base_rate < LITTLE_GAIN * (1 - base_rate)
    if by_chance or (gains_little and alerts > rows / 2):
        text = (
            f"the alerts are hardly better than random ones: {alerts:,} of {rows:,} rows are alerts, of which "
            f"{precision:.1%} are {label}, and {base_rate:.1%} of all rows are"
        )
        return [Alarm(USELESS_ALERTS, text, remedy, label)]
    if argmax is None or not gains_little or argmax.accuracy - metrics.accuracy < RUINED_ACCURACY:
        return []
    if (argmax.f1_by_class[label] or 0.0) < GOOD_F1:
        return []  # argmax misses rows of the label, and a threshold that finds these rows must cost accuracy
    text = (
        f"the threshold of {label} ruins the model: {precision:.1%} of the {alerts:,} rows given {label} are right "
        f"({argmax.precision_by_class[label]:.1%} at argmax), at an accuracy of {metrics.accuracy:.1%} "
        f"({argmax.accuracy:.1%} at argmax)"
    )
    return [Alarm(USELESS_ALERTS, text, remedy, label)]


def _below_majority(
    metrics: ConfusionMetrics, present: list[str], rows: int, has_lost: bool, counts: np.ndarray
) -> Alarm | None:
    """`has_lost`: True if at least one class is never predicted."""
    largest = max(present, key=lambda label: metrics.support_by_class[label])
    share = metrics.support_by_class[largest] / rows
    # A model may trade accuracy for the recall of rare classes. Matthews' correlation shows whether such a model has
    # learned something.
    if metrics.accuracy > share or metrics.mcc >= NO_CORRELATION:
        return None
    if not has_lost and not _agrees_little(counts):
        return None
    text = f"accuracy {metrics.accuracy:.1%} is no more than always saying {largest} would reach ({share:.1%})"
    return Alarm("below_majority", text, LEARN_MORE)


def is_unbalanced(support: Mapping[str, int]) -> bool:
    """Return True if class sizes differ enough for class weights to change the model. `support`: dict label → rows."""
    present = [rows for rows in support.values() if rows]
    return bool(present) and max(present) > UNBALANCED * min(present)


def _remedy(positive: str | None, unbalanced: bool, has_target: bool) -> str:
    if not unbalanced or has_target:
        return LEARN_MORE
    if positive is not None:
        return "decision.min_recall=0.8, which sets a threshold"
    return "loss=balanced or batching=balanced, or a target: 'decision.min_recall={LABEL: 0.8}'"


def _join_labels(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    return ", ".join(labels[:MAX_NAMED]) + more
