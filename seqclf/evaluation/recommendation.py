"""The next step after a verdict: one concrete thing to do, derived from the facts of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqclf.evaluation.alarms import NO_POSITIVE, NOT_BETTER, USELESS_ALERTS, Alarm
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics

POWER = 0.8  # probability that the advised number of rows shows a difference
# The half-width of an interval is 1.96 standard deviations. With that power, a difference of 1.96 + 0.84 is shown.
HALF_WIDTHS = (1.96 + 0.8416) / 1.96
MAX_TIMES_THE_ROWS = 20  # more rows than that are no advice
MIN_EPOCHS = 30  # as in conf/trainer/default.yaml
RARE_SHARE = 0.2  # of positive rows, from which down the threshold 0.5 is rarely the right one
ADAM = ("Adam", "AdamW", "NAdam", "RAdam")  # optimizers that a learning rate of 1e-3 suits
PLAIN_PATH = re.compile(r"[\w./:@%+-]+", re.ASCII)  # needs no quotes in a shell or for Hydra
ROWS_OF_RULE = {"min_recall": "validation rows of {label}", "min_precision": "alerts among the validation rows"}
HOLD_OUT_TEST = ("data.split.test=0.2", "so that rows which chose nothing about the model judge it")
PREDICT = "seqclf predict bundle={bundle} input=new.parquet output=scores.parquet"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Facts of a training that advice depends on, all unknown by default.

    `settings`: its config as plain values. `epochs`: those trained. `best_epoch`: the one that was exported, from 0.
    `bundle`: path of the exported model.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    best_epoch: int | None = None
    bundle: str | None = None


def untried_overrides(training: Training) -> list[str]:
    """Overrides that may help a model that has learned too little, without those that the run had.

    >>> model = {"cell": "gru", "hidden_size": 96, "pooling": "max"}
    >>> untried_overrides(Training(settings={"model": model, "optimizer": {"lr": 0.001}}))
    ['model.pooling=mean+max+last', 'model.hidden_size=192']
    """
    model = training.settings.get("model", {})
    most_epochs = training.settings.get("trainer", {}).get("max_epochs") or 0
    # Training was cut short if it used up few epochs, or if the last one was the best.
    is_short = 0 < most_epochs == training.epochs and (
        most_epochs < MIN_EPOCHS or training.epochs == (training.best_epoch or 0) + 1
    )
    optimizer = training.settings.get("optimizer", {})
    is_adam = str(optimizer.get("_target_", "AdamW")).rpartition(".")[2] in ADAM
    candidates = [
        (f"trainer.max_epochs={max(MIN_EPOCHS, 2 * most_epochs)}", is_short),
        ("optimizer.lr=1e-3", is_adam and optimizer.get("lr") != 1e-3),
        ("model=gru", model.get("cell") != "gru"),
        # A network need not have these keys.
        ("model.pooling=mean+max+last", model.get("pooling") not in (None, "mean+max+last")),
        ("model.hidden_size=192", model.get("hidden_size") not in (None, 192)),
    ]
    return [override for override, is_untried in candidates if is_untried]


def untried_weights(training: Training, decision: Decision) -> list[str]:
    """Overrides that raise the recall of rare classes, without those that the run had."""
    candidates = [
        ("loss=balanced", training.settings.get("loss", {}).get("class_weights") != "balanced"),
        ("batching=balanced", not training.settings.get("batching", {}).get("balance")),
        ("decision.min_recall=0.8", decision.positive is not None and decision.rule == "argmax"),
    ]
    return [override for override, is_untried in candidates if is_untried]


def baseline_alarm(comparisons: Sequence[MetricComparison], rows: int, training: Training) -> Alarm | None:
    """Alarm about a model that is worse than the baseline, or not shown to be better. `rows`: those compared.

    None where both models are nearly perfect: the verdict then notes that these rows cannot tell them apart.
    """
    if not comparisons or comparisons[0].is_better or comparisons[0].is_too_easy:
        return None
    first = comparisons[0]
    verdict = "worse than" if first.is_worse else "not shown to be better than"
    text = (
        f"{verdict} a model that ignores the order: {metric_title(first.metric)} {first.model:.3f} against "
        f"{first.baseline:.3f}, a difference of {first.difference:+.3f} ({first.low:+.3f} to {first.high:+.3f})"
    )
    if (needed := _rows_to_tell(first, rows)) is not None:
        text += (
            f"; about {needed:,} rows instead of {rows:,} would show a difference of this size with a probability of "
            f"{POWER:.0%}"
        )
    if not first.can_be_shown:
        return Alarm(
            NOT_BETTER, text, f"more rows to judge it by: {rows:,} would not show that a perfect model is better"
        )
    overrides = " or ".join(untried_overrides(training)[:2])
    return Alarm(NOT_BETTER, text, f"{overrides}, compared by validation scores" if overrides else "another model")


def _rows_to_tell(comparison: MetricComparison, rows: int) -> int | None:
    """About how many rows would show a difference of the observed size with the probability `POWER`.

    None if the difference is not positive, or if they are too many.
    """
    if comparison.is_better or comparison.difference <= 0:
        return None
    # The width of an interval falls with the square root of the rows.
    times = (HALF_WIDTHS * (comparison.difference - comparison.low) / comparison.difference) ** 2
    return _rounded_up(times * rows) if times <= MAX_TIMES_THE_ROWS else None


def next_step(
    metrics: SplitMetrics,
    split: str,
    decision: Decision,
    baseline: BaselineMetrics | None,
    training: Training | None = None,
) -> str:
    """The most useful thing to do next, as a sentence.

    `metrics`: those of the `split` that the model is judged by. `training`: its facts, where they are known.
    """
    steps = _steps(metrics, split, decision, baseline, training or Training())
    return next(steps)


def _steps(
    metrics: SplitMetrics, split: str, decision: Decision, baseline: BaselineMetrics | None, training: Training
) -> Iterator[str]:
    """Yield steps, the most urgent first. The last one always applies."""
    kinds = {alarm.kind for alarm in metrics.alarms}
    if NO_POSITIVE in kinds and decision.positive is not None:
        yield f"get rows of {decision.positive}: {split} has none among {metrics.rows:,}, so its recall is unknown."
    if kinds & {"never_predicted", "hidden_recall"}:
        yield from map(_train_again, untried_weights(training, decision)[:1])
    if kinds & {"no_better_than_chance", "below_majority"}:
        yield from _tries(training, split)
    useless = {alarm.label for alarm in metrics.alarms if alarm.kind == USELESS_ALERTS}
    yield from (_raise_threshold(guarantee) for guarantee in decision.targets if guarantee.label in useless)
    if baseline is not None and baseline.comparison and not baseline.comparison[0].is_better:
        yield from _steps_to_beat(baseline.comparison[0], baseline.rows, metrics, split, training)
    if metrics.alarms:
        yield "look at the worst errors in the report: do the labels follow from the sequences?"
    if metrics.used_for:
        yield _train_again(*HOLD_OUT_TEST)
    for guarantee in decision.targets:
        if guarantee.rule != "cost" and not guarantee.backed:
            yield _back_promise(guarantee, training)
    if training.settings and baseline is None:
        yield _train_again("baseline=true", "which compares it with a model that ignores the order")
    positive = metrics.positive
    if positive is not None and decision.rule == "argmax" and positive.rows < RARE_SHARE * metrics.rows:
        yield _train_again(
            "decision.min_recall=0.8", f"which promises a recall of {positive.label} and sets the threshold"
        )
    bundle = training.bundle if training.bundle and PLAIN_PATH.fullmatch(training.bundle) else "BUNDLE"
    yield f"use it with {PREDICT.format(bundle=bundle)}"


def _steps_to_beat(
    compared: MetricComparison, rows: int, metrics: SplitMetrics, split: str, training: Training
) -> Iterator[str]:
    """Yield steps for a model that is not shown to beat the baseline on `rows` rows of a split."""
    needed = _rows_to_tell(compared, rows)
    needs_rows = needed is not None or not compared.can_be_shown
    if needs_rows and metrics.used_for:
        yield _train_again(*HOLD_OUT_TEST)
    if needed is not None:
        yield (
            f"judge it on about {needed:,} rows of {split} instead of {rows:,}: as many would show a difference of "
            f"this size with a probability of {POWER:.0%}."
        )
    if compared.is_too_easy:
        yield (
            f"use the simpler model if it is enough, or judge both on more or harder rows than these {rows:,} of "
            f"{split}."
        )
    if not compared.can_be_shown:
        yield f"judge it on more than {rows:,} rows of {split}: these would not show that a perfect model is better."
    yield from _tries(training, split)


def _tries(training: Training, split: str) -> Iterator[str]:
    """Yield the first override to try. Rows that choose between runs no longer judge the result."""
    compare = f" and compare the runs by validation scores, as {split} judges the last one"
    for override in untried_overrides(training)[:1]:
        yield f"train again with {override}{'' if split == 'validation' else compare}."


def _train_again(override: str, reason: str | None = None) -> str:
    return f"train again with {override}" + ("." if reason is None else f", {reason}.")


def _raise_threshold(guarantee: Guarantee) -> str:
    """The step for a promise that is kept by alerts for nearly all rows."""
    return (
        f"look at the rows of {guarantee.label} with the lowest scores: they set the threshold, among "
        f"{guarantee.rows:,} validation rows. Correct wrong labels, get more such rows, or lower "
        f"decision.{guarantee.rule}={guarantee.target:g}."
    )


def _back_promise(guarantee: Guarantee, training: Training) -> str:
    """The step that would make a guarantee hold."""
    key = f"decision.{guarantee.rule}"
    if guarantee.provisional:
        return _train_again("decision.provisional=false decision.holdout=0.5", "so that held-out rows back the promise")
    if guarantee.conflict or not guarantee.needed or guarantee.needed <= guarantee.rows:
        return f"lower {key}={guarantee.target:g}, or improve the model: it does not separate the classes well enough."
    rows = ROWS_OF_RULE.get(guarantee.rule, "validation rows").format(label=guarantee.label)
    holdout = training.settings.get("decision", {}).get("holdout")
    if holdout:
        now, needed = round(guarantee.rows / holdout), _rounded_up(guarantee.needed / holdout)
        share = f"; decision.holdout={holdout:g} sets the threshold on that share of them"
    else:
        now, needed, share = guarantee.rows, _rounded_up(guarantee.needed), ""
    return f"get about {needed:,} {rows} instead of {now:,}, which would back {key}={guarantee.target:g}{share}."


def _rounded_up(rows: float) -> int:
    """Round up to two digits, as more would look exact."""
    unit = 10 ** max(0, math.floor(math.log10(max(rows, 1))) - 1)
    return math.ceil(rows / unit) * unit
