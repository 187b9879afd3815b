"""Choice of a decision on held-out rows: thresholds that keep a target on new data, and their guarantees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.decision import RULES, Decision, Guarantee
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.thresholds import HOLDS, THRESHOLDS, Threshold

GUARANTEED_RULES = ("min_recall", "min_precision", "max_alerts")  # their thresholds are set on held-out rows
ROUNDS = 20  # over the thresholds of several classes, until none moves
SEED = 0  # of the row that is drawn from each group


def choose_decision(
    options: DecisionOptions,
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
    group: np.ndarray | None = None,
    unit: str = "group",
) -> Decision:
    """Decision that keeps the targets of `options` (conf/decision) on new data.

    `logits`: (N, C) and `labels`: (N,) of rows that neither trained the model nor chose it (see `hold_out`).
    `group`: (N,) codes of their groups, None where each row stands alone: a guarantee counts independent units, so one
    row of each group counts, for a recall one that has the label. `unit`: see `Guarantee`.

    Where the rows are too few to back a target, the decision is the most careful that they allow, and the guarantee
    says `backed: False` and how many rows are `needed`. Where the rows did choose the model (`holdout` of 0,
    `provisional`), nothing is backed. Guarantees for several labels hold together with the `confidence`: each takes
    its share of the risk (Bonferroni).
    """
    rule, targets = parse_rule(options, classes, positive)
    temperature = fit_temperature(logits, labels) if options.calibrate else 1.0
    argmax = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return argmax
    confidence = options.confidence
    scaled = argmax.scaled(logits)
    if positive is None:
        # The union bound (Bonferroni) needs no independence between the classes.
        confidence_each = 1 - (1 - confidence) / max(1, len(targets))
        offsets, guarantees = _choose_offsets(rule, targets, scaled, labels, classes, confidence_each, group)
        guarantees = tuple(replace(guarantee, confidence=confidence) for guarantee in guarantees)
        decision = replace(argmax, rule=rule, offsets=offsets, targets=guarantees)
    else:
        index, target = classes.index(positive), targets[positive]
        rows = _counted(rule, labels == index, group)
        threshold = THRESHOLDS[rule](_margin(scaled, index)[rows], labels[rows] == index, target, confidence)
        guarantee = _guarantee(rule, positive, target, confidence, threshold)
        decision = argmax.with_margin(rule, classes, threshold.value, positive)
        decision = replace(decision, targets=(guarantee,))
    marks: dict[str, Any] = {}
    if group is not None and rule in GUARANTEED_RULES:
        marks["unit"] = unit
    if rule in GUARANTEED_RULES and not uses_holdout(options, rule):
        marks |= {"backed": False, "provisional": True}
    return replace(decision, targets=tuple(replace(target, **marks) for target in decision.targets))


def _counted(rule: str, is_label: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """Return (N,) bool: rows that set a threshold. `is_label`, `group`: (N,), see `choose_decision`."""
    counted = np.ones(len(is_label), bool)
    if group is None or rule not in GUARANTEED_RULES:
        return counted
    drawn = is_label if rule == "min_recall" else counted
    return one_of_each(np.flatnonzero(drawn), group) | ~drawn


def one_of_each(rows: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return (N,) bool: a random row of each group among `rows`. Equal arguments give equal rows."""
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
    """True if the threshold of a rule is set on validation rows that are held out for it."""
    return rule in GUARANTEED_RULES and options.holdout > 0 and not options.provisional


def parse_rule(options: DecisionOptions, classes: Sequence[str], positive: str | None) -> tuple[str, dict[str, float]]:
    """Rule of conf/decision and its target by label. Raises InputError where they do not fit the classes."""
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
    """Offsets of several classes that keep the target of each label, and their guarantees.

    Given the other offsets, a row is predicted as a class where its margin over the others exceeds a threshold, as
    with two classes. The thresholds are set in turn until none moves.
    """
    offsets = np.zeros(len(classes))
    counted = {label: _counted(rule, labels == classes.index(label), group) for label in targets}
    thresholds: dict[str, Threshold] = {}
    for _ in range(ROUNDS):
        before = offsets.copy()
        for label, target in targets.items():
            index = classes.index(label)
            scores = _margin(scaled + offsets, index) - offsets[index]
            rows = counted[label]
            thresholds[label] = THRESHOLDS[rule](scores[rows], labels[rows] == index, target, confidence)
            offsets[index] = -thresholds[label].value
        # Convergence is not guaranteed. After a cycle of `ROUNDS` the check below judges the last thresholds.
        if np.allclose(offsets, before, atol=1e-9):
            break
    predicted = (scaled + offsets).argmax(axis=1)
    guarantees = []
    for label, target in targets.items():
        index, counts = classes.index(label), counted[label]
        is_predicted, is_label = (predicted == index) & counts, (labels == index) & counts
        rows = is_label if rule == "min_recall" else is_predicted
        # Checked once more: the other thresholds may have moved since this one was set.
        holds = HOLDS[rule](int((is_predicted & is_label).sum()), int(rows.sum()), target, confidence)
        guarantee = _guarantee(rule, label, target, confidence, thresholds[label])
        backed = guarantee.backed
        guarantees.append(replace(guarantee, backed=backed and holds, conflict=backed and not holds))
    return tuple(offsets.tolist()), tuple(guarantees)


def _margin(scaled: np.ndarray, index: int) -> np.ndarray:
    """Margin (N,) of the logit of class `index` over the largest of the others."""
    return scaled[:, index] - np.delete(scaled, index, axis=1).max(axis=1)
