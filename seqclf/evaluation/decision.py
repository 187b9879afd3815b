"""Decisions: how logits become labels, and the guarantees of decision thresholds on new data. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from seqclf.config.override_text import label_text
from seqclf.errors import InputError
from seqclf.evaluation.calibration import fit_temperature, softmax
from seqclf.evaluation.thresholds import HOLDS, THRESHOLDS, Threshold
from seqclf.system.json_result import JsonResult

RULES = ("min_recall", "min_precision", "max_alerts", "cost")
GUARANTEED_RULES = ("min_recall", "min_precision", "max_alerts")  # their thresholds are set on held-out rows
ROUNDS = 20  # over the thresholds of several classes, until none moves
SEED = 0  # of the row that is drawn from each group
CERTAIN = 1e-12  # distance from 0 and 1 that a margin is computed with


@dataclass(frozen=True, kw_only=True)
class Guarantee(JsonResult):
    """Target of a decision for one label, and its evidence.

    With `backed`, new data with at least `rows` such rows keep the `target` with the probability `confidence`.
    Otherwise `needed` is the number of held-out rows that would back it, None if unknown. `conflict`: the targets of
    several labels exclude each other. `provisional`: the threshold was set on rows that also chose the model. `unit`:
    of what new data is counted, and what `rows` and `needed` count: None for rows, "group" or "sequence" where one row
    is drawn from each group, or from each distinct sequence.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"conflict", "provisional", "unit"})

    rule: str
    label: str
    target: float
    confidence: float
    backed: bool
    rows: int
    needed: int | None
    conflict: bool | None = None
    provisional: bool | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Decision(JsonResult):
    """Rule that turns logits into labels, as stored in a bundle.

    The label is the argmax of `logits / temperature + offsets`. For two classes `threshold` says the same as a
    probability: the `positive` label, which is class `positive_index`, is predicted from there on. `targets`: the
    guarantees that were required of the decision, with their evidence (see `choose_decision`).

    >>> decision = Decision().with_margin("threshold", ["no", "yes"], margin=2.0, positive="yes")
    >>> decision.choose(np.array([[0.0, 1.0], [0.0, 3.0]])).tolist()
    [0, 1]
    """

    rule: str = "argmax"
    positive: str | None = None
    threshold: float | None = None
    offsets: tuple[float, ...] | None = None
    temperature: float = 1.0
    targets: tuple[Guarantee, ...] = ()
    positive_index: int | None = None

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Decision:
        # Without pydantic, whose import takes 0.1 s at every start of prediction. `manifest` has checked the values.
        names = {field.name for field in fields(Guarantee)}
        targets = (Guarantee(**{key: target[key] for key in target if key in names}) for target in state["targets"])
        offsets = state["offsets"]
        return cls(**{**state, "offsets": None if offsets is None else tuple(offsets), "targets": tuple(targets)})

    def scaled(self, logits: np.ndarray) -> np.ndarray:
        """(N, C) float64 logits divided by the temperature."""
        return logits.astype(np.float64) / self.temperature

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """(N, C) logits → (N, C) float64."""
        return softmax(self.scaled(logits))

    def choose(self, logits: np.ndarray) -> np.ndarray:
        """(N, C) logits → (N,) class numbers."""
        if self.rule == "threshold" and self.threshold is not None and self.positive_index is not None:
            # Compares the probabilities that predictions show, so that one equal to the threshold is positive. A
            # probability of 1 is a rounded one, therefore the threshold 1 chooses no row.
            reached = self.probabilities(logits)[:, self.positive_index] >= self.threshold
            return np.where(reached & (self.threshold < 1), self.positive_index, 1 - self.positive_index)
        scaled = self.scaled(logits)
        return (scaled if self.offsets is None else scaled + np.array(self.offsets)).argmax(axis=1)

    def threshold_of(self, index: int) -> float:
        """Probability from which on class `index` of two is predicted."""
        if self.rule == "threshold" and self.threshold is not None:
            return self.threshold if index == self.positive_index else 1 - self.threshold
        return 0.5 if self.offsets is None else _expit(self.offsets[1 - index] - self.offsets[index])

    def with_margin(self, rule: str, classes: Sequence[str], margin: float, positive: str) -> Decision:
        """Decision for two classes that predicts `positive` where its logit exceeds the other one by `margin`."""
        offsets = tuple(0.0 if label == positive else margin for label in classes)
        return replace(
            self,
            rule=rule,
            positive=positive,
            offsets=offsets,
            threshold=_expit(margin),
            positive_index=list(classes).index(positive),
        )


def _expit(margin: float) -> float:
    # exp overflows beyond 709.
    return float(1 / (1 + np.exp(-np.clip(margin, -700, 700))))


def override_threshold(
    decision: Decision, threshold: str | float | None, positive: str | None, classes: Sequence[str]
) -> Decision:
    """Replace a bundle's decision by what the user sets at prediction.

    `threshold`: None keeps the decision, "argmax" predicts the most probable label, and a number is the probability
    from which on the `positive` label is predicted. At 0 every row is positive, at 1 none. Raises InputError on any
    other value, and on a number where there are more than two classes.

    >>> decision = override_threshold(Decision(), 0.2, positive="yes", classes=["no", "yes"])
    >>> logits = np.array([[2.0, 0.0], [1.0, 0.0]])
    >>> decision.probabilities(logits)[:, 1].round(2).tolist(), decision.choose(logits).tolist()
    ([0.12, 0.27], [0, 1])
    """
    if threshold is None:
        return decision
    argmax = Decision(positive=positive, temperature=decision.temperature)
    if threshold == "argmax":
        return argmax
    try:
        probability = float(threshold)
    except (TypeError, ValueError):
        probability = -1.0
    if not 0 <= probability <= 1:
        raise InputError(f"threshold={threshold}", "must be a probability of the positive label, argmax or null")
    if positive is None:
        raise InputError(f"threshold={threshold}", "needs two classes", "set threshold=argmax or null")
    # The margin of 0 or 1 is infinite, and JSON has no infinity. `choose` compares with `threshold` itself.
    inner = min(max(probability, CERTAIN), 1 - CERTAIN)
    margin = float(np.log(inner / (1 - inner)))
    return replace(argmax.with_margin("threshold", classes, margin, positive), threshold=probability)


def choose_decision(
    settings: Mapping[str, Any],
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
    group: np.ndarray | None = None,
    unit: str = "group",
) -> Decision:
    """Decision that keeps the targets of `settings` (conf/decision) on new data.

    `logits`: (N, C) and `labels`: (N,) of rows that neither trained the model nor chose it (see `hold_out`).
    `group`: (N,) codes of their groups, None where each row stands alone: a guarantee counts independent units, so one
    row of each group counts, for a recall one that has the label. `unit`: see `Guarantee`.

    Where the rows are too few to back a target, the decision is the most careful that they allow, and the guarantee
    says `backed: False` and how many rows are `needed`. Where the rows did choose the model (`holdout` of 0,
    `provisional`), nothing is backed. Guarantees for several labels hold together with the `confidence`: each takes
    its share of the risk (Bonferroni).
    """
    rule, targets = parse_rule(settings, classes, positive)
    temperature = fit_temperature(logits, labels) if settings["calibrate"] else 1.0
    argmax = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return argmax
    confidence = settings["confidence"]
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
    if rule in GUARANTEED_RULES and not uses_holdout(settings, rule):
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


def uses_holdout(settings: Mapping[str, Any], rule: str) -> bool:
    """True if the threshold of a rule is set on validation rows that are held out for it."""
    return rule in GUARANTEED_RULES and settings["holdout"] > 0 and not settings["provisional"]


def parse_rule(
    settings: Mapping[str, Any], classes: Sequence[str], positive: str | None
) -> tuple[str, dict[str, float]]:
    """Rule of conf/decision and its target by label. Raises InputError where they do not fit the classes."""
    rules = [rule for rule in RULES if settings[rule] is not None]
    if len(rules) > 1:
        raise InputError(f"decision.{rules[0]} and decision.{rules[1]}", "set one of them")
    if not rules:
        return "argmax", {}
    rule, value = rules[0], settings[rules[0]]
    by_label = {label_text(label): target for label, target in value.items()} if isinstance(value, Mapping) else None
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
    for label, target in targets.items():
        is_number = isinstance(target, (int, float)) and not isinstance(target, bool)
        if not is_number or target <= 0 or (rule != "cost" and target >= 1):
            limit = "above 0" if rule == "cost" else "above 0 and below 1"
            raise InputError(f"decision.{rule}={target} for {label}", f"must be a number {limit}")
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
