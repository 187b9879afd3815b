"""Decisions: rules that turn logits into labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.thresholds import ROWS, SURE
from seqclf.system.json_result import JsonResult

RULES = ("min_recall", "min_precision", "max_alerts", "cost")
COUNTED = {  # (unit of a guarantee, rule) → name of the units that the rule counts
    (None, "min_recall"): "rows of {}",
    (None, "min_precision"): "alerts",
    (None, "max_alerts"): "rows",
    ("group", "min_recall"): "groups with {}",
    ("group", "min_precision"): "groups with an alert",
    ("group", "max_alerts"): "groups",
    ("sequence", "min_recall"): "different sequences of {}",
    ("sequence", "min_precision"): "different sequences with an alert",
    ("sequence", "max_alerts"): "different sequences",
}
# Kinds of rows that set a threshold: rows that chose nothing about the model; validation rows whose logits come from
# head weights that were fitted without the row; rows of all folds, scored by models that did not train on them; rows
# that chose the model too; rows of which somebody left out some.
BASES = HELD_OUT, CROSS_FITTED, FOLDS, CHOSEN, BY_HAND = ("held_out", "cross_fitted", "folds", "chosen", "by_hand")
CERTAIN = 1e-12  # probabilities closer than this to 0 or 1 are moved to this distance before their margin is computed


@dataclass(frozen=True, kw_only=True)
class Guarantee(JsonResult):
    """A target of a decision for one label, and what the rows that set its threshold say about new rows.

    `confidence`: of the sure statement that was asked for, None for one on average. `statement`: that of the threshold,
    one of `STATEMENTS` (see `thresholds`). `backed`: True if the rows back what was asked for. `rows`: rows that the
    rule counts: those of the label for min_recall, alerts for min_precision, otherwise all. `needed`: rows that would
    back it, None if it is backed or unknown. `basis`: kind of the rows, such as `HELD_OUT`. `approximate`: True if the
    statement was simulated, not proven. `conflict`: True if not all targets can be met. `unit`: None if rows are
    counted, "group" or "sequence" (distinct ones). `takes`, `reached`: budget of alerts that a recall takes, and
    recall within the budget of alerts, if the budget rules it out. `beyond_lowest`: rows from which the lowest score of
    all does not set the threshold of a recall, None if it does not. `weighted`: True if the weights of the rows count,
    False if they have weights and the rows count, None without weights. `column`: of the costs of the rows, in place of
    one `target`.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {"approximate", "conflict", "unit", "takes", "reached", "beyond_lowest", "weighted", "column"}
    )

    rule: str
    label: str
    target: float
    confidence: float | None
    statement: str
    backed: bool
    rows: int
    needed: int | None
    basis: str = HELD_OUT
    approximate: bool | None = None
    conflict: bool | None = None
    unit: str | None = None
    takes: float | None = None
    reached: float | None = None
    beyond_lowest: int | None = None
    weighted: bool | None = None
    column: str | None = None

    @property
    def lacks_rows(self) -> bool:
        """True if more rows would back the statement asked for, or if the lowest score of all sets the threshold."""
        is_answered = self.basis in (CHOSEN, BY_HAND) or self.conflict or self.rule == "cost"
        return not is_answered and (self.beyond_lowest is not None or (self.needed or 0) > self.rows)

    @property
    def counted(self) -> str:
        """Name of the units that the rule counts, such as "rows of yes". The rule cost counts nothing."""
        return COUNTED[self.unit, self.rule].format(self.label)


@dataclass(frozen=True)
class Decision(JsonResult):
    """Rule that turns logits into labels, as stored in a bundle: the argmax of `logits / temperature + offsets`.

    `threshold`: minimum probability of the `positive` label of two classes, which `offsets` express too.
    `positive_index`: its class number. `targets`: targets with the evidence for each (see `choose_decision`).

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
        # pydantic is not used here, because its import would take 0.1 s whenever a prediction starts. The module
        # `manifest` has already checked the values.
        names = {field.name for field in fields(Guarantee)}
        targets = (
            # Bundles without statements had sure ones alone.
            Guarantee(
                **{"statement": SURE if target["backed"] else ROWS} | {k: v for k, v in target.items() if k in names}
            )
            for target in state["targets"]
        )
        offsets = state["offsets"]
        return cls(**{**state, "offsets": None if offsets is None else tuple(offsets), "targets": tuple(targets)})

    def scaled(self, logits: np.ndarray) -> np.ndarray:
        """Return (N, C) float64 logits divided by the temperature."""
        return logits.astype(np.float64) / self.temperature

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return (N, C) float64 probabilities of (N, C) logits."""
        return softmax(self.scaled(logits))

    def choose(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted class numbers (N,) of (N, C) logits."""
        if self.rule == "threshold" and self.threshold is not None and self.positive_index is not None:
            # Compare the same probabilities that predictions show, and count a probability equal to the threshold as
            # positive. A shown probability of 1 is always rounded, so no row is positive at the threshold 1.
            reached = self.probabilities(logits)[:, self.positive_index] >= self.threshold
            return np.where(reached & (self.threshold < 1), self.positive_index, 1 - self.positive_index)
        scaled = self.scaled(logits)
        return (scaled if self.offsets is None else scaled + np.array(self.offsets)).argmax(axis=1)

    def threshold_of(self, index: int) -> float:
        """Return the smallest probability at which a class is predicted, beside one other class without a target."""
        if self.rule == "threshold" and self.threshold is not None:
            return self.threshold if index == self.positive_index else 1 - self.threshold
        offsets = self.offsets or (0.0, 0.0)
        return 0.5 if self.offsets is None else expit((offsets[1 - index] if len(offsets) == 2 else 0) - offsets[index])

    def with_margin(self, rule: str, classes: Sequence[str], margin: float, positive: str) -> Decision:
        """Return a decision for two classes that predicts `positive` if its logit exceeds the other by `margin`."""
        offsets = tuple(0.0 if label == positive else margin for label in classes)
        return replace(
            self,
            rule=rule,
            positive=positive,
            offsets=offsets,
            threshold=expit(margin),
            positive_index=list(classes).index(positive),
        )


def expit(margin: float) -> float:
    """Return the probability of a margin (a difference of two logits)."""
    # exp overflows for arguments above 709.
    return float(1 / (1 + np.exp(-np.clip(margin, -700, 700))))


def override_threshold(
    decision: Decision, threshold: str | float | None, positive: str | None, classes: Sequence[str]
) -> Decision:
    """Return the decision of a bundle, changed by the threshold that a user sets at prediction time.

    `threshold`: None keeps the decision, "argmax" predicts the most probable label, and a number is the minimum
    probability of the `positive` label: 0 for every row, 1 for none. Raises InputError for any other value, and for a
    number if there are more than two classes.

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
    # The margin of the probability 0 or 1 is infinite, and JSON cannot hold infinity. The method `choose` therefore
    # compares probabilities with the exact `threshold`.
    inner = min(max(probability, CERTAIN), 1 - CERTAIN)
    margin = float(np.log(inner / (1 - inner)))
    return replace(argmax.with_margin("threshold", classes, margin, positive), threshold=probability)
