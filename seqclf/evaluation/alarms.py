"""Where accuracy hides recall: what is wrong with a verdict, in plain words, and the override that mends it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HIGH_ACCURACY = 0.75  # that may hide something
HIDDEN = 0.5  # a recall below this share of the accuracy
CONFIDENCE = 0.95
MOST_NAMED = 5
LEAST_ROWS = 5  # of a class, for a statement on its recall, unless it is the positive one
NO_RELATION = 0.1  # Matthews' correlation below this is hardly one


class Alarm(NamedTuple):
    """`kind`: never_predicted, no_better_than_chance, below_majority or hidden_recall; `remedy`: overrides to try."""

    kind: str
    text: str
    remedy: str


def alarms(found: dict[str, Any], classes: list[str], positive: str | None, promised: bool = False) -> list[Alarm]:
    """What is wrong with the scores of a split (see `scores.confusion_scores`) and its `confusion`, the gravest first.

    `promised`: decisions keep a promise (conf/decision), so that accuracy may have been given up for recall.
    """
    support, recall = found["support_by_class"], found["recall_by_class"]
    present = [label for label in classes if support[label]]
    if len(present) < 2:
        return []
    rows = sum(support.values())
    predicted = _predicted(found, classes)
    remedy = _remedy(positive)
    raised = []
    enough = [label for label in present if support[label] >= LEAST_ROWS or label == positive]
    never = [label for label in enough if not predicted[label]]
    if never:
        count = sum(support[label] for label in never)
        raised.append(
            Alarm("never_predicted", f"{_named(never)} never predicted: all {count:,} such rows are missed", remedy)
        )
    watched = [label for label in ([positive] if positive in present else enough) if label not in never]
    common = [label for label in watched if support[label] >= LEAST_ROWS]
    chance = [label for label in common if recall[label] <= predicted[label] / rows and predicted[label] < rows]
    if chance:
        told = "; ".join(
            f"{label}: recall {recall[label]:.1%}, while {predicted[label] / rows:.1%} of all rows are given it"
            for label in chance[:MOST_NAMED]
        )
        raised.append(Alarm("no_better_than_chance", f"no better than picking rows at random: {told}", remedy))
    hidden = [
        label for label in watched if label not in chance and _is_hidden(found["accuracy"], recall, support, label)
    ]
    if hidden:
        told = "; ".join(f"{label} {recall[label]:.1%} of {support[label]:,}" for label in hidden[:MOST_NAMED])
        raised.append(Alarm("hidden_recall", f"accuracy {found['accuracy']:.1%} hides the recall of {told}", remedy))
    majority = max(support.values()) / rows
    if not promised and found["accuracy"] <= majority and found["mcc"] < NO_RELATION:
        largest = max(present, key=lambda label: support[label])
        text = f"accuracy {found['accuracy']:.1%} is no more than always saying {largest} would reach ({majority:.1%})"
        raised.append(Alarm("below_majority", text, "trainer.max_epochs=60, optimizer.lr=1e-3 or another model"))
    return raised


def _predicted(found: dict[str, Any], classes: list[str]) -> dict[str, int]:
    """Rows that were given each label."""
    return dict(zip(classes, np.sum(found["confusion"], axis=0).tolist(), strict=True))


def _is_hidden(accuracy: float, recall: dict[str, float], support: dict[str, int], label: str) -> bool:
    """Whether a class of low recall, beyond what its few rows might do by chance, goes under in a high accuracy."""
    from scipy.stats import binom

    low = HIDDEN * accuracy
    if accuracy < HIGH_ACCURACY or recall[label] >= low:
        return False
    hits = round(recall[label] * support[label])
    return bool(binom.cdf(hits, support[label], low) < 1 - CONFIDENCE)


def _remedy(positive: str | None) -> str:
    if positive is not None:
        return "decision.min_recall=0.8, loss=balanced or batching=balanced"
    return "loss=balanced or batching=balanced, or a target: 'decision.min_recall={LABEL: 0.8}'"


def _named(labels: list[str]) -> str:
    shown = ", ".join(labels[:MOST_NAMED]) + (
        f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    )
    return f"{shown} {'is' if len(labels) == 1 else 'are'}"
