"""Recommendation of one concrete next step after an evaluation, derived from the facts of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqclf.evaluation.alarms import NO_POSITIVE, NOT_BETTER, USELESS_ALERTS, Alarm, is_unbalanced
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.group_scores import GroupScores
from seqclf.evaluation.intervals import SIGNED, interval_text
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics
from seqclf.evaluation.thresholds import recall_holds

POWER = 0.8  # probability that the recommended number of rows shows an existing difference
# The half-width of a 95 % interval is 1.96 standard deviations. A difference of 1.96 + 0.84 standard deviations is
# shown with the probability `POWER`.
HALF_WIDTHS = (1.96 + 0.8416) / 1.96
MAX_TIMES_THE_ROWS = 20  # at most this multiple of the present number of rows is recommended
MIN_EPOCHS = 30  # default number of epochs in conf/trainer/default.yaml
RARE_SHARE = 0.2  # below this fraction of positive rows, the threshold 0.5 is rarely right
ADAM = ("Adam", "AdamW", "NAdam", "RAdam")  # optimizers for which a learning rate of 1e-3 is suitable
PLAIN_PATH = re.compile(r"[\w./:@%+-]+", re.ASCII)  # a path that needs no quotes in a shell or in Hydra
ROWS_OF_RULE = {"min_recall": "validation rows of {label}", "min_precision": "alerts among the validation rows"}
UNITS_OF_RULE = {"group": "groups", "sequence": "different sequences"}
HOLD_OUT_TEST = ("data.split.test=0.2", "so that rows which chose nothing about the model judge it")
PREDICT = "seqclf predict bundle={bundle} input=new.parquet output=scores.parquet"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Facts about a training run that determine the recommendation. By default, all facts are unknown.

    `settings`: config of the run as a dict of plain values. `epochs`: number of epochs that were trained. `best_epoch`:
    number of the exported epoch, counted from 0. `bundle`: path of the exported model. `predictions`: path of the file
    with all evaluated rows.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    best_epoch: int | None = None
    bundle: str | None = None
    predictions: str | None = None

    @property
    def is_short(self) -> bool:
        """True if training ended at its limit of epochs and more epochs may help.

        More epochs may help if the limit is low, or if the last epoch was the best.
        """
        most = self.settings.get("trainer", {}).get("max_epochs") or 0
        return 0 < most == self.epochs and (most < MIN_EPOCHS or self.epochs == (self.best_epoch or 0) + 1)

    @property
    def rows_file(self) -> str:
        """Path of the file with all evaluated rows."""
        return self.predictions or "predictions.parquet"


def untried_overrides(training: Training) -> list[str]:
    """Return overrides that the run did not use and that may help a model that has learned too little.

    >>> model = {"cell": "gru", "hidden_size": 96, "pooling": "max"}
    >>> untried_overrides(Training(settings={"model": model, "optimizer": {"lr": 0.001}}))
    ['model.pooling=mean+max+last', 'model.hidden_size=192']
    """
    model = training.settings.get("model", {})
    most_epochs = training.settings.get("trainer", {}).get("max_epochs") or 0
    optimizer = training.settings.get("optimizer", {})
    is_adam = str(optimizer.get("_target_", "AdamW")).rpartition(".")[2] in ADAM
    candidates = [
        (f"trainer.max_epochs={max(MIN_EPOCHS, 2 * most_epochs)}", training.is_short),
        ("optimizer.lr=1e-3", is_adam and optimizer.get("lr") != 1e-3),
        ("model=gru", model.get("cell") != "gru"),
        # Only some networks have these settings.
        ("model.pooling=mean+max+last", model.get("pooling") not in (None, "mean+max+last")),
        ("model.hidden_size=192", model.get("hidden_size") not in (None, 192)),
    ]
    return [override for override, is_untried in candidates if is_untried]


def untried_weights(training: Training, decision: Decision, support: Mapping[str, int]) -> list[str]:
    """Return overrides that the run did not use and that raise the recall of rare classes.

    `support`: dict label → number of rows. Class weights and balanced batches have the same effect, so neither setting
    is recommended if the run used one of them. Both settings have no effect if all classes have the same number of
    rows.
    """
    is_weighted = training.settings.get("loss", {}).get("class_weights") == "balanced"
    is_weighted |= bool(training.settings.get("batching", {}).get("balance"))
    candidates = [
        ("loss=balanced", not is_weighted and is_unbalanced(support)),
        ("decision.min_recall=0.8", decision.positive is not None and decision.rule == "argmax"),
    ]
    return [override for override, is_untried in candidates if is_untried]


class Sampled(NamedTuple):
    """Size of a sample. `number`: number of independent units. `unit`: "rows", or "groups" for grouped rows."""

    number: int
    unit: str = "rows"

    @classmethod
    def of(cls, rows: int, groups: GroupScores | None) -> Sampled:
        """Return the sample size of a split of `rows` rows."""
        return cls(rows) if groups is None or groups.unit != "group" else cls(groups.count, "groups")


def baseline_alarm(comparisons: Sequence[MetricComparison], sampled: Sampled, training: Training) -> Alarm | None:
    """Return an alarm if the model is worse than the baseline, or not shown to be better.

    The result is None if both models are nearly perfect: the verdict then says that these rows cannot tell the models
    apart. `sampled`: size of the sample on which the models were compared.
    """
    if not comparisons or comparisons[0].is_better or comparisons[0].is_too_easy:
        return None
    first = comparisons[0]
    verdict = "worse than" if first.is_worse else "not shown to be better than"
    limits = interval_text((first.low, first.high), SIGNED)
    text = (
        f"{verdict} a model that ignores the order: {metric_title(first.metric)} {first.model:.3f} against "
        f"{first.baseline:.3f}, a difference of {SIGNED(first.difference)} ({limits})"
    )
    count, unit = sampled
    if (needed := _rows_to_tell(first, count)) is not None:
        text += (
            f"; about {needed:,} {unit} instead of {count:,} would show a difference of this size with a probability "
            f"of {POWER:.0%}"
        )
    if not first.can_be_shown:
        return Alarm(
            NOT_BETTER, text, f"more {unit} to judge it by: {count:,} would not show that a perfect model is better"
        )
    overrides = " or ".join(untried_overrides(training)[:2])
    return Alarm(NOT_BETTER, text, f"{overrides}, compared by validation scores" if overrides else "another model")


def _rows_to_tell(comparison: MetricComparison, rows: int) -> int | None:
    """Return the approximate number of rows that would show the observed difference with the probability `POWER`.

    Returns None if the difference is not positive, or if the number of rows would be too large.
    """
    if comparison.is_better or comparison.difference <= 0:
        return None
    # The width of an interval is inversely proportional to the square root of the rows.
    times = (HALF_WIDTHS * (comparison.difference - comparison.low) / comparison.difference) ** 2
    return _rounded_up(times * rows) if times <= MAX_TIMES_THE_ROWS else None


def next_step(
    metrics: SplitMetrics,
    split: str,
    decision: Decision,
    baseline: BaselineMetrics | None,
    training: Training | None = None,
) -> str:
    """Return one sentence that recommends the most useful next step.

    `metrics`: metrics of `split`, the split by which the model is judged. `training`: facts of the run, None if
    unknown.
    """
    steps = _steps(metrics, split, decision, baseline, training or Training())
    return next(steps)


def _steps(
    metrics: SplitMetrics, split: str, decision: Decision, baseline: BaselineMetrics | None, training: Training
) -> Iterator[str]:
    """Yield recommended steps, the most urgent step first. The last step applies to every model."""
    kinds = {alarm.kind for alarm in metrics.alarms}
    if NO_POSITIVE in kinds and decision.positive is not None:
        yield f"get rows of {decision.positive}: {split} has none among {metrics.rows:,}, so its recall is unknown."
    if kinds & {"never_predicted", "hidden_recall"}:
        yield from map(_train_again, untried_weights(training, decision, metrics.support_by_class)[:1])
    if kinds & {"never_predicted", "hidden_recall", "no_better_than_chance", "below_majority"}:
        yield from _tries(training, split)
    useless = {alarm.label for alarm in metrics.alarms if alarm.kind == USELESS_ALERTS}
    yield from (_raise_threshold(guarantee, training) for guarantee in decision.targets if guarantee.label in useless)
    if baseline is not None and baseline.comparison and not baseline.comparison[0].is_better:
        sampled = Sampled.of(baseline.rows, metrics.groups)
        yield from _steps_to_beat(baseline.comparison[0], sampled, metrics, split, training)
    if metrics.alarms:
        yield (
            f"look at the rows of {training.rows_file} that are wrong with the highest probability: do the labels "
            "follow from the sequences?"
        )
    if metrics.used_for:
        yield _train_again(*HOLD_OUT_TEST)
    for guarantee in decision.targets:
        if guarantee.rule != "cost" and not guarantee.backed:
            yield from _back_guarantee(guarantee, training, split)
    if training.settings and baseline is None:
        yield _train_again("baseline=true", "which compares it with a model that ignores the order")
    positive = metrics.positive
    if positive is not None and decision.rule == "argmax" and positive.rows < RARE_SHARE * metrics.rows:
        yield _train_again(
            "decision.min_recall=0.8", f"which guarantees a recall of {positive.label} and sets the threshold"
        )
    bundle = training.bundle if training.bundle and PLAIN_PATH.fullmatch(training.bundle) else "BUNDLE"
    yield f"use it with {PREDICT.format(bundle=bundle)}"


def _steps_to_beat(
    compared: MetricComparison, sampled: Sampled, metrics: SplitMetrics, split: str, training: Training
) -> Iterator[str]:
    """Yield recommended steps for a model that is not shown to beat the baseline on a split."""
    # If the model is better, more rows can show this. If the model is not better, more rows for evaluation do not
    # improve it.
    learns = compared.is_worse or (compared.difference <= 0 and compared.can_be_shown)
    if (training.is_short or learns) and compared.model < 1:
        yield from _tries(training, split)
    count, unit = sampled
    needed = _rows_to_tell(compared, count)
    needs_rows = needed is not None or not compared.can_be_shown
    if needs_rows and metrics.used_for:
        yield _train_again(*HOLD_OUT_TEST)
    if needed is not None:
        yield (
            f"judge it on about {needed:,} {unit} of {split} instead of {count:,}: as many would show a difference of "
            f"this size with a probability of {POWER:.0%}."
        )
    if compared.is_too_easy:
        yield (
            f"use the simpler model if it is enough, or judge both on more or harder {unit} than these {count:,} of "
            f"{split}."
        )
    if not compared.can_be_shown:
        yield f"judge it on more than {count:,} {unit} of {split}: these would not show that a perfect model is better."
    yield from _tries(training, split)


def _tries(training: Training, split: str) -> Iterator[str]:
    """Yield the step to train again with the first override that the run did not use.

    On a split other than validation, the step advises to compare runs by validation scores, because the rows that
    select a run cannot judge this run.
    """
    compare = f" and compare the runs by validation scores, as {split} judges the last one"
    for override in untried_overrides(training)[:1]:
        yield f"train again with {override}{'' if split == 'validation' else compare}."


def _train_again(override: str, reason: str | None = None) -> str:
    return f"train again with {override}" + ("." if reason is None else f", {reason}.")


def _raise_threshold(guarantee: Guarantee, training: Training) -> str:
    """Return the recommended step if a target turns nearly all rows into alerts."""
    lower = ""
    if guarantee.rule == "min_recall" and (target := _target_of_one_less(guarantee)) is not None:
        lower = f", or set decision.min_recall={target:g}, which leaves out the lowest of them"
    return (
        f"look at the rows of {guarantee.label} with the lowest probabilities in {training.rows_file} (split "
        f"threshold): they set the threshold, among {guarantee.rows:,} rows. Correct wrong labels, get more such "
        f"rows{lower}."
    )


def _target_of_one_less(guarantee: Guarantee) -> float | None:
    """Return the highest recall target, in steps of 0.01, that allows one more missed row.

    The result is None if the target would be below 0.5.
    """
    rows, confidence = guarantee.rows, guarantee.confidence
    hits = next((k for k in range(1, rows + 1) if recall_holds(k, rows, guarantee.target, confidence)), rows)
    percents = range(math.ceil(100 * guarantee.target) - 1, 49, -1)
    holds = (percent for percent in percents if recall_holds(hits - 1, rows, percent / 100, confidence))
    target = next(holds, None)
    return None if target is None else target / 100


def _back_guarantee(guarantee: Guarantee, training: Training, split: str) -> Iterator[str]:
    """Yield recommended steps that would back a guarantee."""
    key = f"decision.{guarantee.rule}"
    if guarantee.provisional:
        yield _train_again(
            "decision.provisional=false decision.holdout=0.5", "so that held-out rows back the guarantee"
        )
        return
    if guarantee.conflict or not guarantee.needed or guarantee.needed <= guarantee.rows:
        # The model does not separate the classes well enough.
        yield from _tries(training, split)
        yield f"set a lower {key} than {guarantee.target:g}: the model does not separate the classes well enough."
        return
    rows = ROWS_OF_RULE.get(guarantee.rule, "validation rows").format(label=guarantee.label)
    if guarantee.unit is not None:
        rows = f"{UNITS_OF_RULE[guarantee.unit]} of validation"
        if guarantee.rule == "min_recall":
            rows += f" with {guarantee.label}"
    holdout = training.settings.get("decision", {}).get("holdout")
    if holdout:
        now, needed = round(guarantee.rows / holdout), _rounded_up(guarantee.needed / holdout)
        share = f"; decision.holdout={holdout:g} sets the threshold on that share of them"
    else:
        now, needed, share = guarantee.rows, _rounded_up(guarantee.needed), ""
    yield f"get about {needed:,} {rows} instead of {now:,}, which would back {key}={guarantee.target:g}{share}."


def _rounded_up(rows: float) -> int:
    """Round up to two significant digits, because more digits would suggest a false precision."""
    unit = 10 ** max(0, math.floor(math.log10(max(rows, 1))) - 1)
    return math.ceil(rows / unit) * unit
