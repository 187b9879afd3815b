"""Logits → decisions that keep a promise on new data. Pure numpy; trainer and bundle share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from seqclf.config.yaml_text import label_text
from seqclf.errors import InputError
from seqclf.evaluation.metrics import softmax
from seqclf.evaluation.thresholds import HOLDS, THRESHOLDS, Threshold

RULES = ("min_recall", "min_precision", "max_alerts", "cost")
ROUNDS = 20  # of going over several classes until nothing moves
PROMISES = ("min_recall", "min_precision", "max_alerts")  # rules whose threshold rests on rows kept apart
CERTAIN = 1e-12


@dataclass(frozen=True)
class Decision:
    """How logits become labels, as a bundle keeps it.

    `temperature`: what logits are divided by. `offsets`: (C,) what is added to them then, before the largest is taken;
    None: nothing. `threshold`: for two classes the same in other words, the probability from which on the `positive`
    label is chosen. `targets`: what was promised, and how it stands (see `choose_decision`). `positive_index`: the
    class of the positive label, where there is a threshold.
    """

    rule: str = "argmax"
    positive: str | None = None
    threshold: float | None = None
    offsets: tuple[float, ...] | None = None
    temperature: float = 1.0
    targets: tuple[dict[str, Any], ...] = ()
    positive_index: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Decision:
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in state.items()
        }
        return cls(**given)

    def scaled(self, logits: np.ndarray) -> np.ndarray:
        return logits.astype(np.float64) / self.temperature

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """(N, C) logits → (N, C) float64."""
        return softmax(self.scaled(logits))

    def choose(self, logits: np.ndarray) -> np.ndarray:
        """(N, C) logits → (N,) classes by number."""
        if self.rule == "threshold" and self.threshold is not None and self.positive_index is not None:
            # The very numbers that predictions show are compared, so that a probability equal to the threshold is
            # positive. A probability of 1 is a rounded one: the threshold 1 chooses none.
            reached = self.probabilities(logits)[:, self.positive_index] >= self.threshold
            return np.where(reached & (self.threshold < 1), self.positive_index, 1 - self.positive_index)
        scaled = self.scaled(logits)
        return (scaled if self.offsets is None else scaled + np.array(self.offsets)).argmax(axis=1)

    def threshold_of(self, index: int) -> float:
        """The probability from which on one of two classes is chosen."""
        if self.rule == "threshold" and self.threshold is not None:
            return self.threshold if index == self.positive_index else 1 - self.threshold
        return 0.5 if self.offsets is None else expit(self.offsets[1 - index] - self.offsets[index])

    def at(self, rule: str, classes: Sequence[str], margin: float) -> Decision:
        """For two classes: the positive label where its logit is above the other's by `margin`."""
        offsets = tuple(0.0 if label == self.positive else margin for label in classes)
        index = list(classes).index(str(self.positive))
        return replace(self, rule=rule, offsets=offsets, threshold=expit(margin), positive_index=index)


def expit(margin: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(margin, -700, 700))))


def override_threshold(
    decision: Decision, given: str | float | None, positive: str | None, classes: Sequence[str]
) -> Decision:
    """A bundle's decision as somebody who applies it wants it: None leaves it, `argmax` takes the most probable label,
    a number is the threshold of the `positive` label's probability: at 0 every row is positive, at 1 none."""
    if given is None:
        return decision
    plain = Decision(positive=positive, temperature=decision.temperature)
    if given == "argmax":
        return plain
    try:
        threshold = float(given)
    except (TypeError, ValueError):
        threshold = -1.0
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold={given}: must be a probability of the positive label, argmax or null")
    if positive is None:
        raise InputError(f"threshold={given}: needs two classes; set threshold=argmax or null")
    held = min(max(threshold, CERTAIN), 1 - CERTAIN)
    return replace(plain.at("threshold", classes, float(np.log(held / (1 - held)))), threshold=threshold)


def choose_decision(
    settings: Mapping[str, Any],
    logits: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    positive: str | None,
) -> Decision:
    """The decision that keeps what `settings` (conf/decision) promise, from (N, C) `logits` and (N,) `labels` of rows
    that neither trained the model nor chose it (see `holdout`).

    Where the rows are too few to back a promise, the decision is the most careful they allow, and its target says
    `backed: False` and how many rows are `needed`; without any row it is the most probable label. Where the rows did
    choose the model (`holdout` of 0, `provisional`) nothing is backed, and the target says `provisional: True`.

    Promises for several labels hold together with the `confidence`: each takes its share of the risk (Bonferroni).
    """
    rule, wanted = parse_rule(settings, classes, positive)
    temperature = fit_temperature(logits, labels) if settings["calibrate"] else 1.0
    plain = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return plain
    confidence = settings["confidence"]
    scaled = plain.scaled(logits)
    if positive is None:
        each = 1 - (1 - confidence) / max(1, len(wanted))
        offsets, targets = _shift(rule, wanted, scaled, labels, classes, each)
        known = {"confidence": confidence}
        return _proved(
            replace(plain, rule=rule, offsets=offsets, targets=tuple(one | known for one in targets)), settings
        )
    index, target = classes.index(positive), wanted[positive]
    found = THRESHOLDS[rule](_beside(scaled, index), labels == index, target, confidence)
    known = {"rule": rule, "label": positive, "target": target, "confidence": confidence}
    return _proved(replace(plain.at(rule, classes, found.value), targets=({**known, **found.evidence()},)), settings)


def _proved(decision: Decision, settings: Mapping[str, Any]) -> Decision:
    """Withdraw the promises of a decision whose rows also chose the model."""
    if decision.rule not in PROMISES or uses_holdout(settings, decision.rule):
        return decision
    withdrawn = tuple({**target, "backed": False, "provisional": True} for target in decision.targets)
    return replace(decision, targets=withdrawn)


def uses_holdout(settings: Mapping[str, Any], rule: str) -> bool:
    """Whether the threshold of a rule is set on validation rows kept apart for it."""
    return rule in PROMISES and settings["holdout"] > 0 and not settings["provisional"]


def parse_rule(
    settings: Mapping[str, Any], classes: Sequence[str], positive: str | None
) -> tuple[str, dict[str, float]]:
    """The rule that is asked for and its target by label; raises InputError on settings that cannot be."""
    rules = [rule for rule in RULES if settings[rule] is not None]
    if len(rules) > 1:
        raise InputError(f"decision.{rules[0]} and decision.{rules[1]}: set one of them")
    if not rules:
        return "argmax", {}
    rule, given = rules[0], settings[rules[0]]
    by_label = {label_text(label): value for label, value in given.items()} if isinstance(given, Mapping) else None
    if by_label is not None and (unknown := sorted(set(by_label) - set(classes))):
        raise InputError(f"decision.{rule}: no label '{unknown[0]}'; the labels are {', '.join(classes)}")
    if positive is None and (by_label is None or rule in ("max_alerts", "cost")):
        hint = f"give targets by label: 'decision.{rule}={{{classes[0]}: {given}}}'"
        if rule in ("max_alerts", "cost"):
            hint = f"the data has {len(classes)}; use decision.min_recall or decision.min_precision"
        raise InputError(f"decision.{rule}={given}: needs two classes; {hint}")
    if positive is not None:
        wanted = {positive: given} if by_label is None else by_label
        if list(wanted) != [positive]:
            raise InputError(
                f"decision.{rule}: with two classes it is for the positive label, {positive}; "
                "set data.positive to the label that matters"
            )
    else:
        wanted = by_label or {}
    for label, value in wanted.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or value <= 0 or (rule != "cost" and value >= 1):
            limit = "above 0" if rule == "cost" else "above 0 and below 1"
            raise InputError(f"decision.{rule}={value} for {label}: must be a number {limit}")
    return rule, {label: float(value) for label, value in wanted.items()}


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """What logits are to be divided by for the likelihood of the labels to be highest (Guo et al. 2017).

    Drawn towards 1 by a log-normal prior of deviation 1, which a handful of rows outweighs; without it a split that has
    no error would be made certain of everything.
    """
    from scipy.optimize import minimize_scalar

    scaled = logits.astype(np.float64)
    rows = np.arange(len(labels))

    def cost(log_temperature: float) -> float:
        own = scaled * np.exp(-log_temperature)
        top = own.max(axis=1)
        log_sum = top + np.log(np.exp(own - top[:, None]).sum(axis=1))
        return float((log_sum - own[rows, labels]).sum() + log_temperature**2 / 2)

    return float(np.exp(minimize_scalar(cost, bounds=(-4.0, 4.0), method="bounded").x))


def _shift(
    rule: str,
    wanted: Mapping[str, float],
    scaled: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    confidence: float,
) -> tuple[tuple[float, ...], tuple[dict[str, Any], ...]]:
    """Offsets of several classes that keep the target of each label in `wanted`, and how the promises stand.

    Given the other offsets, a row is decided for a class where its logit and offset are the largest: again one score
    with a threshold. They are set in turns until none moves.
    """
    offsets = np.zeros(len(classes))
    found: dict[str, Threshold] = {}
    for _ in range(ROUNDS):
        before = offsets.copy()
        for label, target in wanted.items():
            index = classes.index(label)
            scores = _beside(scaled + offsets, index) - offsets[index]
            found[label] = THRESHOLDS[rule](scores, labels == index, target, confidence)
            offsets[index] = -found[label].value
        if np.allclose(offsets, before, atol=1e-9):
            break
    targets = []
    for label, target in wanted.items():
        index, own = classes.index(label), found[label]
        # The others may have moved since this label's threshold was set.
        chosen, truth = (scaled + offsets).argmax(axis=1) == index, labels == index
        rows = truth if rule == "min_recall" else chosen
        holds = HOLDS[rule](int((chosen & truth).sum()), int(rows.sum()), target, confidence)
        known = {"rule": rule, "label": label, "target": target, "confidence": confidence, **own.evidence()}
        targets.append({**known, "backed": own.backed and holds, "conflict": own.backed and not holds})
    return tuple(offsets.tolist()), tuple(targets)


def _beside(scaled: np.ndarray, index: int) -> np.ndarray:
    """How far a class's logit is above the largest of the others."""
    return scaled[:, index] - np.delete(scaled, index, axis=1).max(axis=1)
