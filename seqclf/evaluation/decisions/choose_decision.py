"""Choice of decision thresholds on held-out rows, with statements about new data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.decisions.decision import (
    BY_HAND,
    CHOSEN,
    CROSS_FITTED,
    FOLDS,
    HELD_OUT,
    RULES,
    Decision,
    Guarantee,
)
from seqclf.evaluation.decisions.thresholds import (
    AVERAGE,
    ROWS,
    SURE,
    Threshold,
    find_threshold,
    holds,
    one_of_each,
    unit_weights,
)
from seqclf.evaluation.options import DecisionOptions

GUARANTEED_RULES = ("min_recall", "min_precision", "max_alerts")  # rules whose thresholds are set on held-out rows
ROUNDS = 20  # maximum number of passes over the classes, if their thresholds keep changing


def choose_decision(
    options: DecisionOptions,
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
    group: np.ndarray | None = None,
    unit: str = "group",
    basis: str = HELD_OUT,
) -> Decision:
    """Return the decision that meets the targets of `options` (conf/decision) on new data.

    `logits`: (N, C) logits of the rows that set the thresholds. `labels`: (N,) class numbers of the rows. `group`: (N,)
    code of each row's group, None if the rows are independent. `unit`, `basis`: see `Guarantee`.

    Each threshold has the strongest statement that the rows back, up to the statement that `options.confidence` asks
    for (see `find_threshold`). If the rows also chose the model, or if some were left out by hand, no statement is
    backed, and if models of several folds scored the rows, no sure statement is backed. A recall with a budget of
    alerts (`max_alerts`) has its threshold if its alerts stay within the budget, and else that of the budget. Sure
    statements for several labels hold jointly with the probability `confidence`, because the risk is divided evenly
    among the labels (Bonferroni). Statements on average hold for each label by itself.
    """
    rule, targets = parse_rule(options, classes, positive)
    temperature = fit_temperature(logits, labels) if options.calibrate else 1.0
    argmax = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return argmax
    scaled, confidence = argmax.scaled(logits), options.confidence
    if positive is None:
        decision = _joint_decision(argmax, rule, targets, scaled, labels, classes, confidence, group)
    else:
        index = classes.index(positive)
        rows = margin_of(scaled, index), labels == index
        wished = {rule: targets[positive]}
        if rule == "min_recall" and options.max_alerts is not None:
            wished["max_alerts"] = parse_rule(options.model_copy(update={rule: None}), classes, positive)[1][positive]
        found = {name: find_threshold(name, *rows, target, confidence, group) for name, target in wished.items()}
        made = {name: _guarantee(name, positive, wished[name], confidence, found[name]) for name in found}
        rule = max(found, key=lambda name: found[name].value)  # a budget of alerts limits the alerts of a recall
        decision = argmax.with_margin(rule, classes, found[rule].value, positive)
        if rule != next(iter(wished)):
            is_alert, (scores, truth) = rows[0] > found[rule].value, rows
            reached = float(is_alert[truth].mean()) if truth.any() else None
            takes = float((scores > found["min_recall"].value).mean())
            made["min_recall"] = replace(made["min_recall"], backed=False, conflict=True, takes=takes, reached=reached)
        decision = replace(decision, targets=tuple(made.values()))
    if rule not in GUARANTEED_RULES:
        return decision
    return replace(decision, targets=tuple(_with_evidence(each, group, unit, basis) for each in decision.targets))


def _guarantee(rule: str, label: str, target: float, confidence: float | None, threshold: Threshold) -> Guarantee:
    return Guarantee(
        rule=rule,
        label=label,
        target=target,
        confidence=None if rule == "cost" else confidence,
        statement=threshold.statement,
        backed=rule == "cost" or threshold.statement == (AVERAGE if confidence is None else SURE),
        rows=threshold.rows,
        needed=threshold.needed,
    )


def _with_evidence(guarantee: Guarantee, group: np.ndarray | None, unit: str, basis: str) -> Guarantee:
    """Return a guarantee with the kind of the rows that set its threshold."""
    is_backed = (
        guarantee.backed and basis not in (CHOSEN, BY_HAND) and not (basis == FOLDS and guarantee.statement == SURE)
    )
    is_approximate = guarantee.approximate or (basis == CROSS_FITTED and guarantee.statement != ROWS)
    return replace(
        guarantee,
        backed=is_backed,
        basis=basis,
        approximate=is_approximate or None,
        unit=None if group is None else unit,
    )


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


def _joint_decision(
    argmax: Decision,
    rule: str,
    targets: Mapping[str, float],
    scaled: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    confidence: float | None,
    group: np.ndarray | None,
) -> Decision:
    """Return the decision whose logit offsets meet the target of each label.

    A row is predicted as a class if its margin over the other classes exceeds a threshold. The threshold of one class
    is set while the offsets of the other classes stay fixed. The classes are visited in turn until no threshold
    changes.
    """
    offsets, thresholds = np.zeros(len(classes)), dict[str, Threshold]()
    # The Bonferroni correction also holds if the classes are not independent of each other.
    each = None if confidence is None else 1 - (1 - confidence) / len(targets)
    for _ in range(ROUNDS):
        before = offsets.copy()
        for label, target in targets.items():
            index = classes.index(label)
            scores = margin_of(scaled + offsets, index) - offsets[index]
            thresholds[label] = find_threshold(rule, scores, labels == index, target, each, group)
            offsets[index] = -thresholds[label].value
        # The thresholds may not converge. After `ROUNDS` passes, the check below is applied to the last thresholds.
        if np.allclose(offsets, before, atol=1e-9):
            break
    predicted, guarantees = (scaled + offsets).argmax(axis=1), []
    for label, target in targets.items():
        is_predicted, is_label = predicted == classes.index(label), labels == classes.index(label)
        is_drawn = is_label if rule == "min_recall" else np.ones(len(labels), bool)
        guarantee = _guarantee(rule, label, target, confidence, thresholds[label])
        weights = unit_weights(is_drawn, group)
        if guarantee.statement == SURE and group is not None:
            weights = one_of_each(np.flatnonzero(is_drawn), group).astype(np.float64)
        units = float(weights[is_label if rule == "min_recall" else is_predicted].sum())
        hits = float(weights[is_predicted & is_label].sum())
        # Check the target again, because the thresholds of other classes may have changed after this threshold was set.
        kept = guarantee.backed and holds(rule, guarantee.statement, hits, units, target, each)
        guarantees.append(
            replace(
                guarantee,
                backed=kept,
                conflict=guarantee.backed and not kept,
                approximate=guarantee.statement == AVERAGE,
            )
        )
    return replace(argmax, rule=rule, offsets=tuple(offsets.tolist()), targets=tuple(guarantees))


def margin_of(scaled: np.ndarray, index: int) -> np.ndarray:
    """Return the margin (N,): the logit of class `index` minus the largest logit of the other classes."""
    return scaled[:, index] - np.delete(scaled, index, axis=1).max(axis=1)
