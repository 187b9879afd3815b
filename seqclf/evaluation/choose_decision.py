"""Choice of decision thresholds on held-out rows, with statements about new data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.decision import (
    BY_HAND,
    CHOSEN,
    CROSS_FITTED,
    FOLDS,
    HELD_OUT,
    RULES,
    Decision,
    Guarantee,
)
from seqclf.evaluation.thresholds import (
    AVERAGE,
    ROWS,
    SURE,
    Threshold,
    confidence_each,
    effective_units,
    find_threshold,
    holds,
    one_of_each,
    rank_of,
    rows_beyond_lowest,
    unit_weights,
)
from seqclf.settings.decision_settings import DecisionOptions

GUARANTEED_RULES = ("min_recall", "min_precision", "max_alerts")  # rules whose thresholds are set on held-out rows
ROUNDS = 20  # maximum number of passes over the classes, if their thresholds keep changing


def has_guaranteed_rule(options: DecisionOptions) -> bool:
    """Return True if the options name a target whose threshold is set on held-out rows."""
    return any(getattr(options, rule) is not None for rule in GUARANTEED_RULES)


def choose_decision(
    options: DecisionOptions,
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
    group: np.ndarray | None = None,
    unit: str = "group",
    basis: str = HELD_OUT,
    weights: np.ndarray | None = None,
    costs: np.ndarray | None = None,
) -> Decision:
    """Return the decision that meets the targets of `options` on new data.

    `logits`: (N, C) of the rows that set the thresholds. `labels`: (N,) class numbers. `group`: (N,) codes of groups,
    None if rows are independent. `unit`, `basis`: see `Guarantee`. `weights`, `costs`: (N,) of the rows, or None.

    Each threshold has the strongest statement that the rows back, up to the one that `options.confidence` asks for (see
    `find_threshold`): none if the rows also chose the model or some were left out by hand, and none that is sure if
    models of several folds scored them. A recall with a budget (`max_alerts`) has its own threshold if its alerts stay
    within the budget, else the budget's. Sure statements for several labels hold jointly with the probability
    `confidence`, because they share the risk evenly (Bonferroni); statements on average hold for each label by itself.
    """
    rule, targets = parse_rule(options, classes, positive)
    temperature = fit_temperature(logits, labels) if options.calibrate else 1.0
    argmax = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return argmax
    scaled = argmax.scaled(logits)
    column = options.cost if isinstance(options.cost, str) else None
    if column is not None and costs is None:
        raise InputError(f"decision.cost={column}", "the rows have no costs", "train again, or give one number")
    weights = costs if column is not None else None if rule == "cost" else weights
    marks = _Marks(
        options.confidence, len(targets), None if group is None else unit, basis, weights is not None, column
    )
    if positive is None:
        return _joint_decision(argmax, rule, targets, scaled, labels, classes, group, marks, weights)
    index = classes.index(positive)
    scores, truth = margin_of(scaled, index), labels == index
    wished = {rule: targets[positive]}
    if rule == "min_recall" and options.max_alerts is not None:
        wished["max_alerts"] = parse_rule(options.model_copy(update={rule: None}), classes, positive)[1][positive]
    found = {
        name: find_threshold(name, scores, truth, target, options.confidence, group, weights)
        for name, target in wished.items()
    }
    made = {name: marks.guarantee(name, positive, wished[name], found[name]) for name in found}
    rule = max(found, key=lambda name: found[name].value)  # a budget of alerts limits the alerts of a recall
    if rule not in list(wished)[:1] and truth.any():
        takes = _budget_for(found["min_recall"].value, scores, truth, options.confidence, group)
        reached = (scores > found[rule].value)[truth].mean()
        ruled_out = {"takes": takes, "reached": float(reached), "backed": False, "conflict": True}
        made["min_recall"] = replace(made["min_recall"], **ruled_out)  # type: ignore[arg-type]
    decision = argmax.with_margin(rule, classes, found[rule].value, positive)
    return replace(decision, targets=tuple(made.values()))


def _budget_for(
    value: float, scores: np.ndarray, truth: np.ndarray, confidence: float | None, group: np.ndarray | None
) -> float:
    """Return the lowest budget of alerts whose own threshold is not above the threshold `value`."""
    low, high = float((scores > value).mean()), 1 - 1e-9  # a statement asks for more than the rows have
    for _ in range(20):
        middle = (low + high) / 2
        is_enough = find_threshold("max_alerts", scores, truth, middle, confidence, group).value <= value
        low, high = (low, middle) if is_enough else (middle, high)
    return high


class _Marks(NamedTuple):
    """Attributes that the guarantees of a decision share. `labels`: number of labels that share the risk.

    `has_weights`: True if the rows have weights. `column`: of the costs of the rows, or None.
    """

    confidence: float | None
    labels: int
    unit: str | None
    basis: str
    has_weights: bool
    column: str | None

    def guarantee(
        self, rule: str, label: str, target: float, threshold: Threshold, *, conflict: bool | None = None
    ) -> Guarantee:
        if rule == "cost":
            costs = {"rule": rule, "label": label, "target": target, "rows": threshold.rows, "needed": None}
            of_rows = {"confidence": None, "statement": ROWS, "backed": True, "column": self.column}
            return Guarantee(**costs, **of_rows)  # type: ignore[arg-type]
        statement, beyond = threshold.statement, None
        is_backed = statement == (AVERAGE if self.confidence is None else SURE) and not conflict
        is_backed = is_backed and self.basis not in (CHOSEN, BY_HAND) and (self.basis, statement) != (FOLDS, SURE)
        is_simulated = statement == AVERAGE and (conflict is not None or rule == "min_precision")
        is_weighted = self.has_weights and rule == "min_recall" and statement != SURE
        is_simulated = is_simulated or (is_weighted and statement == AVERAGE)
        if rule == "min_recall" and threshold.rows and self.unit is None and not is_weighted:
            beyond = rows_beyond_lowest(
                statement, target, threshold.rows, confidence_each(self.confidence, self.labels)
            )
        return Guarantee(
            rule=rule,
            label=label,
            target=target,
            confidence=self.confidence,
            statement=statement,
            backed=is_backed,
            rows=threshold.rows,
            needed=threshold.needed,
            basis=self.basis,
            approximate=is_simulated or (self.basis == CROSS_FITTED and statement != ROWS) or None,
            conflict=conflict,
            unit=self.unit,
            beyond_lowest=beyond,
            weighted=is_weighted if self.has_weights else None,
        )


def at_the_same_ranks(
    options: DecisionOptions, decision: Decision, labels: np.ndarray, classes: Sequence[str], group: np.ndarray | None
) -> DecisionOptions:
    """Return options whose thresholds lie, among fewer rows, nearest to the ranks of a decision.

    The same target has a higher rank among fewer rows, at which a decision would be judged too badly. `labels`,
    `group`: (M,) of some of the rows that set the thresholds of `decision`.
    """
    changed: dict[str, Any] = {}
    for target in decision.targets:
        confidence = confidence_each(target.confidence, len(decision.targets))
        rank = rank_of(target.rule, target.statement, target.target, target.rows, confidence)
        is_label = labels == classes.index(target.label)
        rows = round(unit_weights(is_label | (target.rule == "max_alerts"), group).sum())
        if rank is None or not rows or target.weighted:  # weights have no ranks
            continue
        nearest = min(max(1, round(rank * (rows + 1) / (target.rows + 1))), rows)
        share = (nearest + (0.5 if target.rule == "max_alerts" else -0.5)) / (rows + 1)
        changed.setdefault(target.rule, {})[target.label] = share
    return options.model_copy(update={**changed, "confidence": None}) if changed else options


def parse_rule(options: DecisionOptions, classes: Sequence[str], positive: str | None) -> tuple[str, dict[str, float]]:
    """Return the rule of `options`, and its targets by label. Raises InputError if they do not fit the labels."""
    rule = next((rule for rule in RULES if getattr(options, rule) is not None), None)
    if rule is None:
        return "argmax", {}
    value = getattr(options, rule)
    value = 1.0 if isinstance(value, str) else value  # costs of the rows take the place of one
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
    group: np.ndarray | None,
    marks: _Marks,
    given: np.ndarray | None = None,
) -> Decision:
    """Return the decision whose logit offsets meet the target of each label.

    The threshold of one class is set while the offsets of the others stay fixed, in turn until none changes. `given`:
    (N,) weights of the rows, or None.
    """
    offsets, thresholds, each = (
        np.zeros(len(classes)),
        dict[str, Threshold](),
        confidence_each(marks.confidence, marks.labels),
    )
    for _ in range(ROUNDS):
        before = offsets.copy()
        for label, target in targets.items():
            index = classes.index(label)
            scores = margin_of(scaled + offsets, index) - offsets[index]
            thresholds[label] = find_threshold(rule, scores, labels == index, target, each, group, given)
            offsets[index] = -thresholds[label].value
        # The thresholds may not converge. After `ROUNDS` passes, the check below is applied to the last thresholds.
        if np.allclose(offsets, before, atol=1e-9):
            break
    predicted, guarantees = (scaled + offsets).argmax(axis=1), []
    for label, target in targets.items():
        is_predicted, is_label = predicted == classes.index(label), labels == classes.index(label)
        is_drawn = is_label if rule == "min_recall" else np.ones(len(labels), bool)
        threshold, is_recall = thresholds[label], rule == "min_recall"
        counted = given if is_recall and threshold.statement != SURE else None
        weights = unit_weights(is_drawn, group, counted)
        if threshold.statement == SURE and group is not None:
            weights = one_of_each(np.flatnonzero(is_drawn), group).astype(np.float64)
        units = float(weights[is_label if is_recall else is_predicted].sum())
        hits = float(weights[is_predicted & is_label].sum())
        # Check the target again, because the thresholds of other classes may have changed after this threshold was set.
        one_more = 1.0 if counted is None else units / max(1.0, effective_units(weights, group))
        kept = threshold.statement == ROWS or holds(rule, threshold.statement, hits, units, target, each, one_more)
        guarantees.append(marks.guarantee(rule, label, target, threshold, conflict=not kept))
    return replace(argmax, rule=rule, offsets=tuple(offsets.tolist()), targets=tuple(guarantees))


def margin_of(scaled: np.ndarray, index: int) -> np.ndarray:
    """Return the margin (N,): the logit of class `index` minus the largest logit of the other classes."""
    others = [scaled[:, code] for code in range(scaled.shape[1]) if code != index]
    return scaled[:, index] - (np.maximum.reduce(others) if len(others) > 1 else others[0])
