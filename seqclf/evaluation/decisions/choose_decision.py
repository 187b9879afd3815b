"""Choice of decision thresholds on held-out rows, with guarantees that targets hold on new data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.decisions.decision import RULES, Decision, Guarantee
from seqclf.evaluation.decisions.thresholds import HOLDS, THRESHOLDS, Threshold
from seqclf.evaluation.options import DecisionOptions

GUARANTEED_RULES = ("min_recall", "min_precision", "max_alerts")  # rules whose thresholds are set on held-out rows
ROUNDS = 20  # maximum number of passes over the classes, if their thresholds keep changing
SEED = 0  # seed of the random draw of one row from each group


def choose_decision(
    options: DecisionOptions,
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
    group: np.ndarray | None = None,
    unit: str = "group",
) -> Decision:
    """Return the decision that meets the targets of `options` (conf/decision) on new data.

    `logits`: (N, C) logits of held-out rows, which neither trained the model nor selected the epoch (see `hold_out`).
    `labels`: (N,) class numbers of the rows. `group`: (N,) code of each row's group, None if the rows are independent.
    A guarantee counts independent units, so it counts only one random row of each group. A recall target counts only
    rows with its label. `unit`: see `Guarantee`.

    If there are too few rows for a guarantee, the decision uses the most cautious threshold that the rows allow. The
    guarantee then has `backed: False`, and its field `needed` is the number of rows that would be enough. If the same
    rows also selected the epoch (`holdout` is 0, or `provisional` is true), the guarantees are not backed. Guarantees
    for several labels hold jointly with the probability `confidence`, because the risk is divided evenly among the
    labels (Bonferroni).
    """
    rule, targets = parse_rule(options, classes, positive)
    temperature = fit_temperature(logits, labels) if options.calibrate else 1.0
    argmax = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return argmax
    confidence = options.confidence
    scaled = argmax.scaled(logits)
    if positive is None:
        # The Bonferroni correction also holds if the classes are not independent of each other.
        confidence_each = 1 - (1 - confidence) / max(1, len(targets))
        offsets, guarantees = _choose_offsets(rule, targets, scaled, labels, classes, confidence_each, group)
        guarantees = tuple(replace(guarantee, confidence=confidence) for guarantee in guarantees)
        decision = replace(argmax, rule=rule, offsets=offsets, targets=guarantees)
    else:
        index, target = classes.index(positive), targets[positive]
        rows = counted_rows(rule, labels == index, group)
        threshold = THRESHOLDS[rule](margin_of(scaled, index)[rows], labels[rows] == index, target, confidence)
        guarantee = _guarantee(rule, positive, target, confidence, threshold)
        decision = argmax.with_margin(rule, classes, threshold.value, positive)
        decision = replace(decision, targets=(guarantee,))
    marks: dict[str, Any] = {}
    if group is not None and rule in GUARANTEED_RULES:
        marks["unit"] = unit
    if rule in GUARANTEED_RULES and not uses_holdout(options, rule):
        marks |= {"backed": False, "provisional": True}
    return replace(decision, targets=tuple(replace(target, **marks) for target in decision.targets))


def counted_rows(rule: str, is_label: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """Return a mask (N,) of the rows that are counted when a threshold is set.

    `is_label`: (N,) bool, True for rows with the label. `group`: (N,) code of each row's group, None if the rows are
    independent.
    """
    counted = np.ones(len(is_label), bool)
    if group is None or rule not in GUARANTEED_RULES:
        return counted
    drawn = is_label if rule == "min_recall" else counted
    return one_of_each(np.flatnonzero(drawn), group) | ~drawn


def one_of_each(rows: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return a mask (N,) that selects one random row of each group among the row numbers `rows`.

    Equal arguments give the same rows.
    """
    shuffled = np.random.default_rng(SEED).permutation(rows)
    _, first = np.unique(group[shuffled], return_index=True)
    chosen = np.zeros(len(group), bool)
    chosen[shuffled[first]] = True
    return chosen


def _guarantee(rule: str, label: str, target: float, confidence: float, threshold: Threshold) -> Guarantee:
    return Guarantee(
        rule=rule,
        label=label,
        target=target,
        confidence=confidence,
        backed=threshold.backed,
        rows=threshold.rows,
        needed=threshold.needed,
    )


def uses_holdout(options: DecisionOptions, rule: str) -> bool:
    """Return True if the threshold of a rule is set on held-out validation rows."""
    return rule in GUARANTEED_RULES and options.holdout > 0 and not options.provisional


def parse_rule(options: DecisionOptions, classes: Sequence[str], positive: str | None) -> tuple[str, dict[str, float]]:
    """Return the decision rule of `options`, and its targets as a dict label → target.

    Raises InputError if the targets do not fit the labels.
    """
    rule = next((rule for rule in RULES if getattr(options, rule) is not None), None)
    if rule is None:
        return "argmax", {}
    value = getattr(options, rule)
    by_label = value if isinstance(value, Mapping) else None
    if by_label is not None and (unknown := sorted(set(by_label) - set(classes))):
        raise InputError(f"decision.{rule}", f"no label '{unknown[0]}'", f"the labels are {', '.join(classes)}")
    if positive is None and (by_label is None or rule in ("max_alerts", "cost")):
        hint = f"set targets by label: 'decision.{rule}={{{classes[0]}: {value}}}'"
        if rule in ("max_alerts", "cost"):
            hint = f"the data has {len(classes)}; use decision.min_recall or decision.min_precision"
        raise InputError(f"decision.{rule}={value}", "needs two classes", hint)
    if positive is None:
        targets = by_label or {}
    else:
        targets = {positive: value} if by_label is None else by_label
        if list(targets) != [positive]:
            raise InputError(
                f"decision.{rule}",
                f"with two classes it is for the positive label, {positive}",
                "set data.positive to the label that matters",
            )
    return rule, {label: float(target) for label, target in targets.items()}


def _choose_offsets(
    rule: str,
    targets: Mapping[str, float],
    scaled: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    confidence: float,
    group: np.ndarray | None,
) -> tuple[tuple[float, ...], tuple[Guarantee, ...]]:
    """Return the logit offsets that meet the target of each label, and the guarantees of these targets.

    A row is predicted as a class if its margin over the other classes exceeds a threshold. The threshold of one class
    is set while the offsets of the other classes stay fixed. The classes are visited in turn until no threshold
    changes.
    """
    offsets = np.zeros(len(classes))
    counted = {label: counted_rows(rule, labels == classes.index(label), group) for label in targets}
    thresholds: dict[str, Threshold] = {}
    for _ in range(ROUNDS):
        before = offsets.copy()
        for label, target in targets.items():
            index = classes.index(label)
            scores = margin_of(scaled + offsets, index) - offsets[index]
            rows = counted[label]
            thresholds[label] = THRESHOLDS[rule](scores[rows], labels[rows] == index, target, confidence)
            offsets[index] = -thresholds[label].value
        # The thresholds may not converge. After `ROUNDS` passes, the check below is applied to the last thresholds.
        if np.allclose(offsets, before, atol=1e-9):
            break
    predicted = (scaled + offsets).argmax(axis=1)
    guarantees = []
    for label, target in targets.items():
        index, counts = classes.index(label), counted[label]
        is_predicted, is_label = (predicted == index) & counts, (labels == index) & counts
        rows = is_label if rule == "min_recall" else is_predicted
        # Check the target again, because the thresholds of other classes may have changed after this threshold was set.
        holds = HOLDS[rule](int((is_predicted & is_label).sum()), int(rows.sum()), target, confidence)
        guarantee = _guarantee(rule, label, target, confidence, thresholds[label])
        backed = guarantee.backed
        guarantees.append(replace(guarantee, backed=backed and holds, conflict=backed and not holds))
    return tuple(offsets.tolist()), tuple(guarantees)


def margin_of(scaled: np.ndarray, index: int) -> np.ndarray:
    """Return the margin (N,): the logit of class `index` minus the largest logit of the other classes."""
    return scaled[:, index] - np.delete(scaled, index, axis=1).max(axis=1)
