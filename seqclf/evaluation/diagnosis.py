"""Diagnosis of a run: the most likely cause of its errors, and the settings that are known to act on this cause.

The error of a model on validation rows is the error that it makes on its own training rows (the fit error), plus the
gap between training and validation rows. The larger part names the cause: underfitting or overfitting. Both scores are
of the exported model without dropout, so they can be compared; the mean over a training epoch, with dropout, cannot.

Four causes come before these two, because another training of the same kind would not remove them: groups that splits
share, rare classes that the loss gave up, a training that ended before it had converged, and a simpler model that beats
the network. `tests/evaluation/test_advice_by_cause.py` trains on generated rows with a known cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.evaluation.alarms import LOW_RECALL, is_unbalanced
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.intervals import Interval
from seqclf.evaluation.metrics import ConfusionMetrics, metric_title
from seqclf.evaluation.results import SplitMetrics

MIN_EPOCHS = 12  # smallest number of epochs of trainer.max_epochs=auto (conf/trainer/default.yaml)
ADVISED_EPOCHS = 30  # smallest number of epochs that is advised after a training that was too short
LAST_EPOCHS = 0.9  # a best epoch in the last tenth of the training may mean that the training ended too early
MAX_SHORT_STEPS = 3000  # optimizer steps; a longer training of at least `MIN_EPOCHS` is not called too short
MIN_FIT_ERROR = 0.1  # an error of less on the training rows is not called underfitting
MIN_GAP = 0.03  # a gap of less between training and validation rows is not called overfitting
LONG_SIGNAL = 200  # tokens; from this mean length on, windows of kernels shorten a signal for the recurrent layers
BASE_UNITS = 96  # default of model.hidden_size
MAX_UNITS = 192  # largest model.hidden_size that is recommended
DROPOUTS = {"dropout": 0.25, "token_dropout": 0.1}  # defaults of conf/model
WEAK_DROPOUT = 0.1
MEMBERS = 3
REFIT = "refit=true"  # the override changes no validation score
ADAM = ("Adam", "AdamW", "NAdam", "RAdam")  # optimizers for which a learning rate of 1e-3 is suitable
RANDOM_SPLITS = ("random", "distinct")  # values of data.split.by that divide the rows of a group


class Cause(StrEnum):
    """The most likely cause of the errors of a model. Each value is the name of the cause in a recommendation."""

    SHARED_GROUPS = "groups in several splits"
    LOST_CLASS = "a lost rare class"
    FEW_STEPS = "a training that is too short"
    SIMPLER_MODEL = "a simpler model that is better"
    UNDERFITTING = "underfitting"
    OVERFITTING = "overfitting"
    NONE = "no cause"


class Score(NamedTuple):
    """Score of a model on one split. `metric`: name of the metric. `interval`: 95 % interval, None if unknown."""

    metric: str
    value: float
    interval: Interval = None

    @classmethod
    def of(cls, metrics: SplitMetrics) -> Score | None:
        """Return the average precision of the positive label, or the macro recall without a positive label.

        The average precision depends on no threshold, which a guarantee may have moved.
        """
        intervals = metrics.intervals
        if metrics.positive is None:
            return cls("recall", metrics.recall, None if intervals is None else intervals.recall)
        if metrics.positive.average_precision is None:
            return None
        positive = None if intervals is None else intervals.positive
        interval = None if positive is None else positive.average_precision
        return cls("average_precision", metrics.positive.average_precision, interval)


class Fit(NamedTuple):
    """Scores of one model on training and validation rows."""

    train: Score
    validation: Score

    @classmethod
    def of(cls, splits: Mapping[str, SplitMetrics]) -> Fit | None:
        """Return the fit of a model from its metrics, or None if it is unknown."""
        scores = [Score.of(splits[split]) if split in splits else None for split in ("train", "validation")]
        return None if scores[0] is None or scores[1] is None else cls(scores[0], scores[1])

    @property
    def gap(self) -> float:
        """Score on training rows minus score on validation rows, at least 0."""
        return max(0.0, self.train.value - self.validation.value)

    @property
    def fit_error(self) -> float:
        """Error on the training rows."""
        return 1 - self.train.value

    @property
    def is_underfitted(self) -> bool:
        """True if most of the error is made on the training rows too."""
        return self.fit_error > MIN_FIT_ERROR and self.fit_error >= self.gap

    @property
    def is_overfitted(self) -> bool:
        """True if most of the error is not made on the training rows, by more than chance."""
        interval = self.validation.interval
        by_chance = interval is None or self.train.value <= interval[1]
        return not by_chance and self.gap > max(MIN_GAP, self.fit_error)

    def __str__(self) -> str:
        values = f"{self.train.value:.3f} on train, {self.validation.value:.3f} on validation"
        return f"{metric_title(self.train.metric)} {values}"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a training run that determine the cause of its errors. By default, all facts are unknown.

    `settings`: config of the run as a dict of plain values. `epochs`: number of epochs that were trained. `best_epoch`:
    number of the exported epoch, counted from 0. `steps`: number of optimizer steps of all epochs. `ranks`: number of
    processes that trained. `fit`: scores on training and validation rows. `splits`: dict split → metrics of the
    exported model. `leaks`: counts of rows that the splits share. `has_numbers`: True if a field is numeric.
    `signal_length`: mean number of tokens of a training row if all fields are numeric, else 0.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    best_epoch: int | None = None
    steps: int | None = None
    ranks: int = 1
    fit: Fit | None = None
    splits: Mapping[str, SplitMetrics] = field(default_factory=dict)
    leaks: LeakReport | None = None
    has_numbers: bool = False
    signal_length: float = 0.0

    def block(self, name: str) -> Mapping[str, Any]:
        """Return a block of the settings, such as `model`. A block that is missing is empty."""
        found: Mapping[str, Any] = self.settings.get(name) or {}
        return found

    @property
    def is_short(self) -> bool:
        """True if training ended at its limit of epochs and more epochs may help.

        More epochs may help if the limit is low, or if one of the last epochs was the best. The last epochs of a long
        training are often the best because the learning rate falls, so the number of steps has to be low as well.
        Without `monitor`, the last epoch is kept, be it the best or not.
        """
        most = self.block("trainer").get("max_epochs") or 0
        is_last_best = bool(self.settings.get("monitor")) and (self.best_epoch or 0) + 1 > LAST_EPOCHS * most
        was_improving = is_last_best and (self.steps or 0) <= MAX_SHORT_STEPS
        return 0 < most == self.epochs and (most < MIN_EPOCHS or was_improving)

    @property
    def is_unfinished(self) -> bool:
        """True if training was short and most of the error is made on the training rows too."""
        if not self.is_short or self.fit is None:
            return self.is_short
        is_cut = (self.epochs or 0) < MIN_EPOCHS
        smallest = MIN_GAP if is_cut else MIN_FIT_ERROR
        return self.fit.fit_error > max(smallest, self.fit.gap)

    @property
    def halts(self) -> bool:
        """True for a network that stops reading early, which has no members."""
        return "earliness" in self.block("model")


@dataclass(frozen=True)
class Diagnosis:
    """The cause of the errors of a model, the evidence as a clause, and overrides against the cause, the best first.

    The overrides were not used by the run, and the chosen model has their keys.
    """

    cause: Cause
    evidence: str = ""
    overrides: tuple[str, ...] = ()


def diagnose(
    facts: Facts, judged: SplitMetrics, compared: MetricComparison | None = None, *, is_troubled: bool = False
) -> Diagnosis:
    """Return the most likely cause of the errors of a model.

    `judged`: metrics of the split by which the model is judged. `compared`: comparison with the order-blind baseline.
    `is_troubled`: True if the model has to be improved, because it has an alarm or does not beat the baseline. The
    larger part of the error then names the cause, even if the part is small.
    """
    if (evidence := _shared_groups(facts, judged)) is not None:
        return Diagnosis(Cause.SHARED_GROUPS, evidence, ("data.split.by=group",))
    if (lost := _lost_class(facts, judged)) and (overrides := untried_weights(facts, judged)):
        recall = judged.recall_by_class[lost]
        return Diagnosis(Cause.LOST_CLASS, f"recall of {lost} {recall:.3f}, accuracy {judged.accuracy:.3f}", overrides)
    fit = facts.fit
    if facts.is_unfinished and (is_troubled or fit is not None):
        return Diagnosis(Cause.FEW_STEPS, "" if fit is None else str(fit), tuple(_capacity(facts)))
    if compared is not None and compared.is_worse:
        evidence = f"{metric_title(compared.metric)} {compared.baseline:.3f} against {compared.model:.3f}"
        is_overfitted = fit is not None and fit.gap > fit.fit_error
        untried = _regularisation(facts) if is_overfitted else _capacity(facts)
        return Diagnosis(Cause.SIMPLER_MODEL, evidence, tuple(untried))
    if fit is None:
        return Diagnosis(Cause.UNDERFITTING if is_troubled else Cause.NONE, "", tuple(_capacity(facts)) * is_troubled)
    if fit.is_overfitted or (is_troubled and fit.gap > fit.fit_error):
        return Diagnosis(Cause.OVERFITTING, str(fit), tuple(_regularisation(facts)))
    if fit.is_underfitted or is_troubled:
        return Diagnosis(Cause.UNDERFITTING, str(fit), tuple(_capacity(facts)))
    return Diagnosis(Cause.NONE, str(fit))


def untried_weights(facts: Facts, judged: ConfusionMetrics) -> tuple[str, ...]:
    """Return overrides that the run did not use and that raise the recall of rare classes.

    Class weights, balanced batches and adjusted logits have the same effect, so none of them is recommended if the run
    used one. They have no effect if all classes have the same number of rows.
    """
    loss = facts.block("loss")
    is_weighted = loss.get("class_weights") == "balanced" or bool(loss.get("tau"))
    if is_weighted or facts.block("batching").get("balance") or not is_unbalanced(judged.support_by_class):
        return ()
    return ("loss=balanced",)


def _lost_class(facts: Facts, judged: SplitMetrics) -> str | None:
    """Return the rarest class with a recall that is significantly lower than the accuracy, or None.

    Only classes that are rarer than the mean count, because weights lower the recall of the others. A class that the
    model finds among the training rows is not lost by the loss: it has too few rows.
    """
    support = {label: rows for label, rows in judged.support_by_class.items() if rows}
    rare = [label for label, rows in support.items() if rows < sum(support.values()) / len(support)]
    train = facts.splits.get("train")
    for label in sorted(rare, key=lambda name: support[name]):
        upper = None if judged.intervals is None else judged.intervals.recall_by_class.get(label)
        recall = judged.recall_by_class[label] or 0.0
        highest = recall if upper is None else upper[1]
        found = 0.0 if train is None else train.recall_by_class.get(label) or 0.0
        if highest < LOW_RECALL * judged.accuracy and found < 2 * max(recall, LOW_RECALL * judged.accuracy):
            return label
    return None


def _shared_groups(facts: Facts, judged: SplitMetrics) -> str | None:
    """Return the evidence that a random split has put rows of one group into several splits, or None.

    If the model is judged by rows of other groups, the evidence is a validation score that differs from the test score
    by more than chance.
    """
    data, leaks = facts.block("data"), facts.leaks
    split = data.get("split") or {}
    if leaks is None or leaks.dropped or not data.get("group") or split.get("by") not in RANDOM_SPLITS:
        return None
    shared = {name: rows for name, rows in (leaks.groups_seen_before or {}).items() if rows and not data.get(name)}
    last = next(reversed(list(facts.splits)), None)
    if last is not None and shared.get(last):
        return f"{shared[last]:,} rows of {last} are of a group that train has too"
    validation = facts.splits.get("validation")
    if "validation" not in shared or validation is None or last == "validation":
        return None
    first, second = (None if part.intervals is None else part.intervals.accuracy for part in (validation, judged))
    if first is None or second is None:
        return None
    half = math.hypot(*((high - low) / 2 for low, high in (first, second)))
    if abs(validation.accuracy - judged.accuracy) <= half:
        return None
    return f"accuracy {validation.accuracy:.3f} on validation, which shares groups, {judged.accuracy:.3f} on {last}"


def _capacity(facts: Facts) -> Iterator[str]:
    """Yield untried overrides for a network that does not fit its training rows."""
    model, optimizer = facts.block("model"), facts.block("optimizer")
    if facts.is_short:
        yield f"trainer.max_epochs={max(ADVISED_EPOCHS, 2 * (facts.block('trainer').get('max_epochs') or 0))}"
    is_recurrent = _target(model) == "SequenceClassifier" and _target(model.get("encoder") or {}) == "Recurrent"
    if is_recurrent and facts.signal_length >= LONG_SIGNAL:
        yield "model=auto"
    if facts.has_numbers and (model.get("number_noise") or 0) > 0:
        yield "model.number_noise=0"
    units, heads = model.get("hidden_size") or MAX_UNITS, model.get("heads")
    unit = 2 * heads if isinstance(heads, int) else 1  # the heads of model=auto are a list
    larger = [f"model.hidden_size={size}" for size in (BASE_UNITS, MAX_UNITS) if size > units and not size % unit]
    if units < BASE_UNITS:
        yield from larger[:1]
    if (model.get("dropout") or 0) > DROPOUTS["dropout"]:
        yield f"model.dropout={WEAK_DROPOUT}"
    if _target(optimizer, "AdamW") in ADAM and optimizer.get("lr") != 1e-3:
        yield "optimizer.lr=1e-3"
    if units >= BASE_UNITS:
        yield from larger[:1]
    if model.get("pooling") not in (None, "mean+max+last"):
        yield "model.pooling=mean+max+last"
    if WEAK_DROPOUT < (model.get("dropout") or 0) <= DROPOUTS["dropout"]:
        yield f"model.dropout={WEAK_DROPOUT}"


def _regularisation(facts: Facts) -> Iterator[str]:
    """Yield untried overrides for a network that fits its training rows better than other rows."""
    model, trainer = facts.block("model"), facts.block("trainer")
    # The order is that of the median gain of 13 trainings on 150 to 300 rows: refit +0.019, members +0.012. Stronger
    # dropout than the default lowered the accuracy of most, so only the default is restored.
    for key, default in DROPOUTS.items():
        if key in model and (model[key] or 0) < default:
            yield f"model.{key}={default}"
    keeps_run = facts.halts or facts.settings.get("structure") or trainer.get("max_time") or trainer.get("callbacks")
    can_refit = "test" in facts.splits and facts.ranks == 1 and not keeps_run
    if facts.settings.get("refit") is False and can_refit:
        yield REFIT
    if model.get("members") == 1 and not facts.halts:
        yield f"model.members={MEMBERS}"


def _target(block: Mapping[str, Any], default: str = "") -> str:
    """Return the name of the class that a block of the settings builds."""
    return str(block.get("_target_", default)).rpartition(".")[2]
