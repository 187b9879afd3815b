"""Result of a run: the content of metrics.json, the facts that it is judged with, and reasons against the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from seqclf.data.splitting.policies import SPLITS
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.store import SplitCounts
from seqclf.errors import InputError
from seqclf.evaluation.alarms import CHANCE, NO_POSITIVE, NOT_BETTER, USELESS_ALERTS, WEAK_THRESHOLD
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.comparison import Comparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import MAIN_METRICS, Metrics, metric_key
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import SplitResult, WeightedMetrics, unproven_labels
from seqclf.evaluation.targets import BROKEN, ForcingRow, Target
from seqclf.system.json_result import JsonObject, to_json

REASONS = {  # dict kind of alarm → reason against using the model
    NO_POSITIVE: "no row tells its recall",
    "never_predicted": "there are labels that it never predicts",
    CHANCE: "it is not shown to be better than chance",
    "hidden_recall": "its accuracy hides a low recall",
    USELESS_ALERTS: "its alerts are hardly better than random ones",
    "below_majority": "always saying the largest class is right as often",
    WEAK_THRESHOLD: "with as many alerts, it is not shown to find more than a model that ignores the order",
    NOT_BETTER: "it is not shown to beat a model that ignores the order",
}
RANDOM_ALERTS = "its alerts are not shown to be right more often than random ones"


def reasons_against(metrics: SplitResult, decision: Decision, split: str, *, is_apart: bool = True) -> list[str]:
    """Return the reasons why a model should not be used yet, as clauses, the gravest first, or none.

    `metrics`: of the `split` that judges the model, with all alarms. `is_apart`: True if it shares no group and no time
    with earlier splits.
    """
    reasons = [_over_budget(decision, target) for target in decision.targets if target.takes is not None]
    reasons += [RANDOM_ALERTS] if unproven_labels(decision, metrics) else []
    reasons += [REASONS.get(alarm.kind, alarm.text) for alarm in metrics.alarms]
    reasons += [] if _beats_chance(metrics) else [REASONS[CHANCE]]
    if any(result.status == BROKEN for result in metrics.targets or ()):
        reasons.append(f"{split} contradicts its target")
    elif any(target.rule != "cost" and not target.backed and target.takes is None for target in decision.targets):
        reasons.append("its threshold has a weaker statement than was asked for")
    if metrics.used_for:
        reasons.append(f"the {split} rows that judge it also chose its {' and '.join(metrics.used_for)}")
    if not is_apart:
        reasons.append(f"{split} shares groups or times with the rows before it")
    return list(dict.fromkeys(reasons))


def _beats_chance(metrics: SplitResult) -> bool:
    """Return True if the AUROC of the positive label, or else macro recall, is shown to be above that of a coin.

    The 95 % interval lies above in 2.5 % of models that know nothing. No alarm proves no worth.
    """
    if (known := metrics.intervals) is None:
        return False
    present = sum(rows > 0 for rows in metrics.support_by_class.values())
    of_macro, label = (known.recall, 1 / present), known.positive
    interval, chance = of_macro if label is None else (label.auroc, 0.5)
    return interval is not None and interval[0] > chance


def _over_budget(decision: Decision, target: Guarantee) -> str:
    budget = next(other.target for other in decision.targets if other.rule == "max_alerts")
    takes, reached = target.takes or 0.0, target.reached or 0.0
    found = f"at {100 * budget:g}% it finds {reached:.0%}"
    return f"{target.target:.0%} of {target.label} take a budget of {takes:.1%} alerts; {found}"


MAX_UNKNOWN = 0.05  # maximum fraction of rows with labels that are no classes
MAX_CLASSES = 50  # maximum number of classes for a score of each class
VERSION = 2  # of metrics.json


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Knowledge of a run beside the scores of its models.

    `monitor`: validation metric that chose the epoch, None for the last step. `chosen`: other choices of validation
    rows about the model. `no_baseline`: why no order-blind model was scored. `settings`: config of the training as
    plain values, empty without one. `epochs`, `steps`, `seconds`: of the training. `best_epoch`: the exported epoch,
    from 0. `weights`: number of trained weights. `bundle`: path of the exported model, or None. `data`, `leaks`,
    `trained_steps`: see `RunResult`. `history`: rows of metrics.csv. `warnings`: lines about the data and the network.
    """

    monitor: str | None = None
    chosen: tuple[str, ...] = ()
    no_baseline: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 0
    best_epoch: int | None = None
    steps: int = 0
    seconds: float | None = None
    weights: int | None = None
    bundle: str | None = None
    data: Mapping[str, SplitCounts] = field(default_factory=dict)
    leaks: LeakReport | None = None
    trained_steps: int | None = None
    history: Sequence[JsonObject] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ModelResult(Metrics):
    """Another model on the judged rows, or on a sample of them, compared with the network.

    `name`: "order-blind", or that of a head or of a file. `kind`: such as "gradient boosting". `comparisons`: of the
    network (`model`) with it (`baseline`) on the same rows; the first decides (see `compare_models`). `candidates`:
    dict kind → split → deciding metric of all order-blind models that were tried. `weighted`: the metrics by weights.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = Metrics.OMIT_NONE | {"candidates", "weighted"}

    name: str
    kind: str
    comparisons: list[Comparison]
    candidates: dict[str, dict[str, float]] | None = None
    weighted: WeightedMetrics | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of a training run, which is the content of metrics.json, or of an evaluation, which sets the first fields.

    `splits`: dict split → result; the last one judges the model. `baseline`: the best order-blind model. `no_baseline`:
    reason why there is none. `others`: other models on the same rows, such as heads of the network alone. `targets`:
    see `target_rows`. `next_step`: the most useful thing to do next. `data`: counts of the dataset by split. `leaks`:
    counts of rows that splits share. `holdout_rows`: validation rows that only set the threshold. `trained_steps`:
    optimizer steps of the evaluated checkpoint. metrics.json lacks `forcing` (see `forcing_rows`) and `rows`: dict
    split → scored rows, held-out ones last.
    """

    splits: Mapping[str, SplitResult]
    decision: Decision
    baseline: ModelResult | None = None
    no_baseline: str | None = None
    others: tuple[ModelResult, ...] = ()
    targets: tuple[Target, ...] = ()
    forcing: tuple[ForcingRow, ...] = ()
    next_step: str | None = None
    calibration: Calibration | None = None
    data: Mapping[str, SplitCounts] = field(default_factory=dict)
    leaks: LeakReport | None = None
    holdout_rows: int = 0
    trained_steps: int | None = None
    rows: Mapping[str, ScoredRows] = field(default_factory=dict, compare=False, repr=False)

    @property
    def split(self) -> str:
        """Name of the split that the model is judged by."""
        return list(self.splits)[-1]

    @property
    def metrics(self) -> SplitResult:
        """Result of the split that the model is judged by."""
        return self.splits[self.split]

    @property
    def judged(self) -> ScoredRows:
        """Rows of the split that the model is judged by."""
        return self.rows[self.split]

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of the logits."""
        return list(self.metrics.support_by_class)

    @property
    def positive(self) -> str | None:
        """The positive label, None without a positive label."""
        return None if self.metrics.positive is None else self.metrics.positive.label

    @property
    def is_apart(self) -> bool:
        """True unless the split that judges the model shares groups or times with the rows of earlier splits."""
        return self.leaks is None or self.leaks.is_apart(self.split)

    @property
    def is_independent(self) -> bool:
        """True if the rows of the judging split chose nothing about the model and are independent of earlier splits."""
        return not self.metrics.used_for and self.is_apart

    @property
    def not_yet(self) -> list[str]:
        """Reasons against the use of the model (see `reasons_against`)."""
        reasons = reasons_against(self.metrics, self.decision, self.split, is_apart=self.is_apart)
        unknown = self.unknown_labels
        is_many = unknown > MAX_UNKNOWN * (unknown + self.metrics.rows)
        return [f"{self.split} has labels that it does not know"] * is_many + reasons

    @property
    def unknown_labels(self) -> int:
        """Number of rows of the judging split with a label that is no class, which no metric counts."""
        return self.data[self.split].unknown_labels if self.split in self.data else 0

    def scores(self) -> dict[str, dict[str, float]]:
        """Return dict split → `metric_key` → score, with the scores of the order-blind baseline as split `baseline`."""
        scores = {
            # For the training rows, more scores would only fill tables.
            split: {**(mean_scores(metrics) if split == "train" else all_scores(metrics)), **(metrics.own or {})}
            for split, metrics in self.splits.items()
        }
        return scores if self.baseline is None else {**scores, "baseline": all_scores(self.baseline)}

    def without_rows(self) -> RunResult:
        """Return the result without ids of rows and names of groups."""
        splits = {}
        for name, metrics in self.splits.items():
            groups = None if metrics.groups is None else replace(metrics.groups, worst=[])
            splits[name] = replace(metrics, groups=groups)
        return replace(self, splits=splits, forcing=(), rows={})

    def to_dict(self) -> JsonObject:
        """Return the JSON form: one block per split at the top level, so users can read `metrics["test"]["recall"]`.

        Ids of rows (`forcing`) are left out: threshold.parquet holds them.
        """
        content = {
            "version": VERSION,
            **self.splits,
            "baseline": self.baseline,
            "no_baseline": self.no_baseline,
            "others": self.others or None,
            "targets": self.targets or None,
            "not_yet": self.not_yet if self.splits else None,
            "next": self.next_step,
            "decision": self.decision,
            "calibration": self.calibration,
            "data": self.data or None,
            "holdout": {"rows": self.holdout_rows},
            "leaks": self.leaks,
            "step": self.trained_steps,
        }
        return {key: to_json(value) for key, value in content.items() if value is not None}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RunResult:
        """Return the result of the JSON form `state`, the inverse of `to_dict`. Missing parts are unknown.

        A split without a complete block is left out. Raises InputError for the content of another version.
        """
        # A custom training loop may give `write_bundle` a few scores only, which are not a complete block.
        whole = [name for name in SPLITS if "by_length" in (state.get(name) or ())]
        if whole and (version := state.get("version", 1)) != VERSION:
            raise InputError("metrics.json", f"is of version {version}, this seqclf reads {VERSION}")
        try:
            kinds = (("baseline", ModelResult), ("calibration", Calibration), ("leaks", LeakReport))
            parts: dict[str, Any] = {key: kind.from_dict(state[key]) for key, kind in kinds if key in state}
            return cls(
                splits={name: SplitResult.from_dict(state[name]) for name in whole},
                decision=Decision.from_dict(state["decision"]) if "decision" in state else Decision(),
                **parts,
                no_baseline=state.get("no_baseline"),
                others=tuple(map(ModelResult.from_dict, state.get("others", ()))),
                targets=tuple(map(Target.from_dict, state.get("targets", ()))),
                next_step=state.get("next"),
                data={split: SplitCounts.from_dict(rows) for split, rows in state.get("data", {}).items()},
                holdout_rows=state.get("holdout", {"rows": 0})["rows"],
                trained_steps=state.get("step"),
            )
        # The file may be edited, so any key may be missing or have another type.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(None, f"is not as this version writes it ({type(error).__name__}: {error})") from error


def mean_scores(metrics: Metrics) -> dict[str, float]:
    """Return dict `metric_key` → score for the loss, the accuracy and the macro means of a split."""
    return {metric_key(name): getattr(metrics, name) for name in MAIN_METRICS}


def all_scores(metrics: Metrics) -> dict[str, float]:
    """Return dict `metric_key` → score for all scores of a split that are defined."""
    positive = metrics.positive
    scores: dict[str, float | None] = {**mean_scores(metrics), "mcc": metrics.mcc, "ece": metrics.ece}
    scores |= {name: getattr(positive or metrics, name) for name in RANKING_METRICS}
    if len(metrics.recall_by_class) <= MAX_CLASSES:
        scores |= {metric_key("recall", label): recall for label, recall in metrics.recall_by_class.items()}
    if positive is not None:
        scores |= {metric_key(name, positive.label): getattr(positive, name) for name in ("precision", "f1")}
    if (weighted := getattr(metrics, "weighted", None)) is not None:
        scores |= {f"weighted_{name}": value for name, value in all_scores(weighted).items()}
    return {name: float(value) for name, value in scores.items() if value is not None}
