"""Probabilities → decisions that keep a promise on new data. Pure numpy; trainer and bundle share it.

Promises are exact and free of assumptions on the scores' distribution. A threshold is set at the score of the k-th of n
validation rows; of m new rows of the same kind, the number at or above it is then beta-binomial with parameters
(m, k, n - k + 1), whatever that distribution is (a fact of order statistics; equal scores only make it safer). Here
m = n: the promise is for new data with as many such rows as validation has, and so holds for more of them too.

Scores are differences of logits, which stay apart where probabilities are 1 to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from seqclf.checks import label_text
from seqclf.errors import InputError
from seqclf.learning.scores import softmax

RULES = ("min_recall", "min_precision", "max_alerts", "cost")
CANDIDATES = 20  # thresholds that min_precision considers
ROUNDS = 20  # of going over several classes until nothing moves
NOISE = 1e-4  # by which the same row's logits may differ between PyTorch and ONNX Runtime, and from batch to batch
CERTAIN = 1e-12


@dataclass(frozen=True)
class Decision:
    """How logits become labels, as a bundle keeps it.

    `temperature`: what logits are divided by. `offsets`: (C,) what is added to them then, before the largest is taken;
    None: nothing. `threshold`: for two classes the same in other words, the probability from which on the `positive`
    label is chosen. `targets`: what was promised, and how it stands (see `choose_decision`).
    """

    rule: str = "argmax"
    positive: str | None = None
    threshold: float | None = None
    offsets: tuple[float, ...] | None = None
    temperature: float = 1.0
    targets: tuple[dict[str, Any], ...] = ()

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
        scaled = self.scaled(logits)
        return (scaled if self.offsets is None else scaled + np.array(self.offsets)).argmax(axis=1)

    def threshold_of(self, index: int) -> float:
        """The probability from which on one of two classes is chosen."""
        return 0.5 if self.offsets is None else float(expit(self.offsets[1 - index] - self.offsets[index]))

    def at(self, rule: str, classes: Sequence[str], margin: float) -> Decision:
        """For two classes: the positive label where its logit is above the other's by `margin`."""
        offsets = tuple(0.0 if label == self.positive else margin for label in classes)
        return replace(self, rule=rule, offsets=offsets, threshold=float(expit(margin)))


def expit(margin: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(margin, -700, 700))))


def overridden(decision: Decision, given: str | float | None, positive: str | None, classes: Sequence[str]) -> Decision:
    """A bundle's decision as somebody who applies it wants it: None leaves it, `argmax` takes the most probable label,
    a number is the threshold of the `positive` label's probability."""
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
    """The decision that keeps what `settings` (conf/decision) promise, from (N, C) `logits` and (N,) `labels` of
    validation rows, which training has not fitted.

    Where the rows are too few to back a promise, the decision is the most careful they allow, and its target says
    `backed: False` and how many rows are `needed`; without any row it is the most probable label.
    """
    rule, wanted = read_settings(settings, classes, positive)
    temperature = fit_temperature(logits, labels) if settings["calibrate"] else 1.0
    plain = Decision(positive=positive, temperature=temperature)
    if rule == "argmax":
        return plain
    confidence = settings["confidence"]
    scaled = plain.scaled(logits)
    if positive is None:
        offsets, targets = _shift(rule, wanted, scaled, labels, classes, confidence)
        return replace(plain, rule=rule, offsets=offsets, targets=targets)
    index, target = classes.index(positive), wanted[positive]
    found = THRESHOLDS[rule](_beside(scaled, index), labels == index, target, confidence)
    known = {"rule": rule, "label": positive, "target": target, "confidence": confidence}
    return replace(plain.at(rule, classes, found.value), targets=({**known, **found.evidence()},))


def read_settings(
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


@dataclass(frozen=True)
class Threshold:
    """A score from which on rows are chosen; 0: the most probable label. `backed`: whether the promise stands; `rows`:
    of validation that it rests on; `needed`: how many would do where they are too few, if that can be told."""

    value: float
    backed: bool
    rows: int
    needed: int | None = None

    def evidence(self) -> dict[str, Any]:
        return {"backed": self.backed, "rows": self.rows, "needed": self.needed}


def keep_recall(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the fewest false alerts that keeps the recall of `truth` (N,) at `target` in new data; among
    those the lowest, as recall beyond the target is welcome where it costs nothing."""
    ranked = -np.sort(-scores[truth])
    count = len(ranked)
    place = _first(count, lambda found: recall_holds(found, count, target, confidence))
    if place is not None:
        return Threshold(_free(ranked, scores[~truth], float(ranked[place - 1])), True, count)
    lowest = float(ranked[-1]) - NOISE if count else 0.0
    return Threshold(lowest, False, count, _needed(lambda n: recall_holds(n, n, target, confidence)))


def _free(own: np.ndarray, others: np.ndarray, highest: float) -> float:
    """The lowest threshold that chooses none of the `others` besides those at or above `highest`."""
    below = others[others < highest]
    if not len(below):
        return float(own.min()) - NOISE
    last = float(own[own > below.max()].min())
    return min((last + float(below.max())) / 2, last - NOISE)


def recall_holds(found: int, rows: int, target: float, confidence: float) -> bool:
    """Whether new data keep the recall where a threshold finds so many of validation's rows."""
    return _at_or_above(found, rows, rows, _least(target * rows)) >= confidence


def keep_alerts(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The lowest threshold that chooses at most a share `target` of new rows."""
    ranked = -np.sort(-scores)
    count = len(ranked)
    most = int(target * count + 1e-9)
    # The alerts are above the place-th score, so at most as many new rows as lie at or above it.
    last = _first(count, lambda k: _at_or_above(k, count, count, most + 1) > 1 - confidence)
    place = (last or count + 1) - 1
    if place < 1:
        needed = _needed(lambda n: _at_or_above(1, n, n, int(target * n + 1e-9) + 1) <= 1 - confidence)
        return Threshold(float(ranked[0]) + NOISE if count else 0.0, False, count, needed)
    return Threshold(float(ranked[place - 1]) + NOISE, True, count)


def keep_precision(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the highest recall whose precision stays at `target` in new data with as many alerts.

    Looks at `CANDIDATES` thresholds, each at its share of the risk (Bonferroni): beside new data that fall short,
    validation would have to be a surprise by Fisher's exact test.
    """
    own = -np.sort(-scores[truth])
    places = np.unique(np.ceil(np.arange(1, CANDIDATES + 1) / CANDIDATES * len(own)).astype(int))
    values = [float(own[place - 1]) - NOISE for place in places.tolist() if place]
    counts = [(int((truth & (scores >= value)).sum()), int((scores >= value).sum())) for value in values]
    for value, (right, alerts) in zip(values[::-1], counts[::-1], strict=True):
        if precision_holds(right, alerts, target, confidence):
            return Threshold(value, True, alerts)
    best = int(np.argmax([right / alerts for right, alerts in counts])) if counts else -1
    needed = _needed(lambda n: precision_holds(n, n, target, confidence))
    if best < 0:
        return Threshold(0.0, False, 0, needed)
    return Threshold(values[best], False, counts[best][1], needed)


def precision_holds(right: int, alerts: int, target: float, confidence: float) -> bool:
    """Whether new data keep the precision where `right` of so many alerts on validation are."""
    from scipy.stats import hypergeom

    if not alerts:
        return False
    short = _least(target * alerts) - 1
    return bool(hypergeom.cdf(short, 2 * alerts, right + short, alerts) <= (1 - confidence) / CANDIDATES)


def least_cost(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the lowest cost, a row of `truth` that is missed costing `target` times a false alarm."""
    order = np.argsort(-scores, kind="stable")
    ranked, right = scores[order], truth[order]
    missed = right.sum() - np.concatenate([[0], np.cumsum(right)])
    costs = target * missed + np.concatenate([[0.0], np.cumsum(~right)])
    costs[1:-1][ranked[:-1] - ranked[1:] <= NOISE / 10] = np.inf  # such scores are chosen together
    place = int(costs.argmin())
    if place in (0, len(ranked)):
        value = ranked[0] + NOISE if place == 0 else ranked[-1] - NOISE
    else:
        value = (ranked[place - 1] + ranked[place]) / 2
    return Threshold(float(value), True, len(scores))


THRESHOLDS = {
    "min_recall": keep_recall,
    "min_precision": keep_precision,
    "max_alerts": keep_alerts,
    "cost": least_cost,
}

HOLDS = {"min_recall": recall_holds, "min_precision": precision_holds}


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


def _at_or_above(place: int, count: int, new: int, wanted: int) -> float:
    """The chance that at least `wanted` of `new` rows score at or above the `place`-th of `count` rows.

    They do if, of the `wanted` + `place` - 1 highest of all rows, at least `wanted` are new.
    """
    from scipy.stats import hypergeom

    if wanted <= 0:
        return 1.0
    if wanted > new or place < 1:
        return 0.0
    return float(hypergeom.sf(wanted - 1, count + new, new, wanted + place - 1))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest of 1 … `count` for which a condition holds that, once true, stays so."""
    if count < 1 or not holds(count):
        return None
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _needed(holds: Callable[[int], bool], most: int = 100_000) -> int | None:
    """About the smallest number of rows for which a condition holds."""
    count = 1
    while count <= most:
        if holds(count):
            return count
        count += max(1, count // 50)
    return None


def _least(share: float) -> int:
    """The smallest whole number of rows that reaches a share."""
    return int(np.ceil(share - 1e-9))
