"""Result of a run, and its form in metrics.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seqclf.data.splitting.policies import SPLITS
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.store import SplitCounts
from seqclf.errors import InputError
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import MAIN_METRICS, ClassificationMetrics, metric_key
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.readiness import reasons_against
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics
from seqclf.evaluation.tokens_curve import TokensCurve
from seqclf.system.json_result import JsonObject, JsonResult

Read = TypeVar("Read")
MAX_CLASSES = 50  # classes that have a score each


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of a training run, the content of metrics.json, or of an evaluation, which knows the first fields only.

    `splits`: metrics by split; the last split is the one that the model is judged by. `no_baseline`: why there is no
    baseline. `next_step`: the most useful thing to do next, as a sentence. `data` and `leaks`: counts of the dataset by
    split, and of rows that its splits share. `holdout_rows`: validation rows that only set the threshold.
    `trained_steps`: optimizer steps of the checkpoint that was evaluated. `halting`: accuracy against tokens read, for
    a network that may halt before the end of a sequence.
    """

    splits: Mapping[str, SplitMetrics]
    decision: Decision
    baseline: BaselineMetrics | None = None
    no_baseline: str | None = None
    next_step: str | None = None
    calibration: Calibration | None = None
    data: Mapping[str, SplitCounts] = field(default_factory=dict)
    leaks: LeakReport | None = None
    holdout_rows: int = 0
    trained_steps: int | None = None
    halting: TokensCurve | None = None

    @property
    def split(self) -> str:
        """Name of the split that the model is judged by."""
        return list(self.splits)[-1]

    @property
    def metrics(self) -> SplitMetrics:
        """Metrics of that split."""
        return self.splits[self.split]

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of the logits."""
        return list(self.metrics.support_by_class)

    @property
    def positive(self) -> str | None:
        """The label that matters, None without one."""
        return None if self.metrics.positive is None else self.metrics.positive.label

    @property
    def is_apart(self) -> bool:
        """True unless that split shares groups or times with the rows before it."""
        return self.leaks is None or self.leaks.is_apart(self.split)

    @property
    def is_independent(self) -> bool:
        """True if the rows of that split chose nothing about the model, and are apart from the rows before them."""
        return not self.metrics.used_for and self.is_apart

    @property
    def not_yet(self) -> list[str]:
        """Reasons against the use of the model (see `reasons_against`)."""
        return reasons_against(self.metrics, self.decision, self.split, is_apart=self.is_apart)

    def scores(self) -> dict[str, dict[str, float]]:
        """Return scores by split and `metric_key`, and those of the order-blind baseline as `baseline`."""
        scores = {
            # More scores of the rows that the model was trained on would only fill tables.
            split: mean_scores(metrics) if split == "train" else all_scores(metrics)
            for split, metrics in self.splits.items()
        }
        return scores if self.baseline is None else {**scores, "baseline": all_scores(self.baseline)}

    def to_dict(self) -> JsonObject:
        """JSON form: a block per split at the top level, so that `metrics["test"]["recall"]` reads as it should."""
        content = {
            **self.splits,
            "baseline": self.baseline,
            "no_baseline": self.no_baseline,
            "not_yet": self.not_yet if self.splits else None,
            "next": self.next_step,
            "decision": self.decision,
            "halting": self.halting,
            "calibration": self.calibration,
            "data": self.data or None,
            "holdout": {"rows": self.holdout_rows},
            "leaks": self.leaks,
            "step": self.trained_steps,
        }
        return {key: _plain(value) for key, value in content.items() if value is not None}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RunResult:
        """Inverse of `to_dict`. Parts that `state` lacks are unknown, and so is a split without a whole block.

        Raises InputError for the content of another version.
        """

        def part(key: str, read: Callable[[Any], Read]) -> Read | None:
            return read(state[key]) if key in state else None

        try:
            counts = state.get("data", {})
            # The author of a training loop may give `write_bundle` a few scores, which are no block.
            whole = [name for name in SPLITS if "by_length" in state.get(name, ())]
            return cls(
                splits={name: SplitMetrics.from_dict(state[name]) for name in whole},
                decision=part("decision", Decision.from_dict) or Decision(),
                baseline=part("baseline", BaselineMetrics.from_dict),
                no_baseline=state.get("no_baseline"),
                next_step=state.get("next"),
                calibration=part("calibration", Calibration.from_dict),
                data={split: SplitCounts.from_dict(rows) for split, rows in counts.items()},
                leaks=part("leaks", LeakReport.from_dict),
                holdout_rows=state.get("holdout", {"rows": 0})["rows"],
                trained_steps=state.get("step"),
                halting=part("halting", TokensCurve.from_manifest),
            )
        # The file may be of another version or edited, so any key may be missing or of another type.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(None, f"is not as this version writes it ({type(error).__name__}: {error})") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value.to_dict() if isinstance(value, JsonResult) else value


def mean_scores(metrics: ClassificationMetrics) -> dict[str, float]:
    """Return loss, accuracy and the macro means of a split by `metric_key`."""
    return {metric_key(name): getattr(metrics, name) for name in MAIN_METRICS}


def all_scores(metrics: ClassificationMetrics) -> dict[str, float]:
    """Return the scores of a split by `metric_key`: each once, and none that is not defined.

    Average precision and AUROC are those of the positive label, or means over more than two classes.
    """
    positive = metrics.positive
    scores: dict[str, float | None] = {**mean_scores(metrics), "mcc": metrics.mcc, "ece": metrics.ece}
    scores |= {name: getattr(positive or metrics, name) for name in RANKING_METRICS}
    if len(metrics.recall_by_class) <= MAX_CLASSES:
        scores |= {metric_key("recall", label): recall for label, recall in metrics.recall_by_class.items()}
    if positive is not None:
        scores |= {metric_key(name, positive.label): getattr(positive, name) for name in ("precision", "f1")}
    return {name: float(value) for name, value in scores.items() if value is not None}
