"""Decisions: how logits become labels. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.system.json_result import JsonResult

RULES = ("min_recall", "min_precision", "max_alerts", "cost")
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
