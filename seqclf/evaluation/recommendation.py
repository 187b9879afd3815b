"""Recommendation of one concrete next step after an evaluation, derived from the facts of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqclf.evaluation.alarms import (
    CHANCE,
    NO_POSITIVE,
    NOT_BETTER,
    USELESS_ALERTS,
    WEAK_THRESHOLD,
    Alarm,
    is_unbalanced,
)
from seqclf.evaluation.comparison import EQUAL_ALERTS, MetricComparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.diagnosis import REFIT, Cause, Diagnosis, Facts, diagnose
from seqclf.evaluation.group_scores import GroupScores
from seqclf.evaluation.intervals import SIGNED, interval_text
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics, unproven_labels

POWER = 0.8  # probability that the recommended number of rows shows an existing difference
# The half-width of a 95 % interval is 1.96 standard deviations. A difference of 1.96 + 0.84 standard deviations is
# shown with the probability `POWER`.
HALF_WIDTHS = (1.96 + 0.8416) / 1.96
MAX_TIMES_THE_ROWS = 20  # at most this multiple of the present number of rows is recommended
RARE_SHARE = 0.2  # below this fraction of positive rows, the threshold 0.5 is rarely right
LOST = {"never_predicted", "hidden_recall"}  # alarms about classes with a low recall
UNTRAINED = {*LOST, CHANCE, "below_majority"}  # alarms that a training may remove
PLAIN_PATH = re.compile(r"[\w./:@%+-]+", re.ASCII)  # a path that needs no quotes in a shell or in Hydra
ROWS_OF_RULE = {"min_recall": "validation rows of {label}", "min_precision": "alerts among the validation rows"}
UNITS_OF_RULE = {"group": "groups", "sequence": "different sequences"}
HOLD_OUT_TEST = ("data.split.test=0.2", "so that rows which chose nothing about the model judge it")
OTHER_TARGET = "another target (the table of targets shows the alerts of each)"
PREDICT = "seqclf predict bundle={bundle} input=new.parquet output=scores.parquet"


@dataclass(frozen=True, kw_only=True)
class Training(Facts):
    """Facts about a training run, and the files that a recommendation names.

    `bundle`: path of the exported model. `predictions`: path of the file with all evaluated rows.
    """

    bundle: str | None = None
    predictions: str | None = None

    @property
    def rows_file(self) -> str:
        """Path of the file with all evaluated rows."""
        return self.predictions or "predictions.parquet"


class Sampled(NamedTuple):
    """Size of a sample. `number`: number of independent units. `unit`: "rows", or "groups" for grouped rows."""

    number: int
    unit: str = "rows"

    @classmethod
    def of(cls, rows: int, groups: GroupScores | None) -> Sampled:
        """Return the sample size of a split of `rows` rows."""
        return cls(rows) if groups is None or groups.unit != "group" else cls(groups.count, "groups")


def baseline_alarms(
    comparisons: Sequence[MetricComparison], decision: Decision, sampled: Sampled, diagnosis: Diagnosis
) -> list[Alarm]:
    """Return an alarm for each judged comparison in which the model is worse, or not shown to be better.

    The first comparison is judged. With a threshold, recall at equal alerts is judged too, and comes first, because a
    better ranking does not help if the threshold gives worthless alerts. There is no alarm if both models are nearly
    perfect: the verdict then says that these rows cannot tell the models apart. `sampled`: size of the sample on which
    the models were compared. `diagnosis`: cause of the errors.
    """
    judged = (entry for entry in comparisons[:1] if not entry.is_better and not entry.is_too_easy)
    return [_baseline_alarm(entry, sampled, diagnosis) for entry in [*_at_threshold(comparisons, decision), *judged]]


def _at_threshold(comparisons: Sequence[MetricComparison], decision: Decision) -> list[MetricComparison]:
    """Return the comparisons at a threshold in which the model is not shown to be better."""
    compared = [] if decision.rule == "argmax" else [entry for entry in comparisons if entry.metric == EQUAL_ALERTS]
    return [entry for entry in compared if not entry.is_better and not entry.is_too_easy]


def _baseline_alarm(compared: MetricComparison, sampled: Sampled, diagnosis: Diagnosis) -> Alarm:
    verdict = "worse than" if compared.is_worse else "not shown to be better than"
    limits = interval_text((compared.low, compared.high), SIGNED)
    text = (
        f"{verdict} a model that ignores the order: {compared.title} {compared.model:.3f} against "
        f"{compared.baseline:.3f}, a difference of {SIGNED(compared.difference)} ({limits})"
    )
    count, unit = sampled
    if (needed := _rows_to_tell(compared, count)) is not None:
        text += (
            f"; about {needed:,} {unit} instead of {count:,} would show a difference of this size with a probability "
            f"of {POWER:.0%}"
        )
    if compared.metric == EQUAL_ALERTS:
        return Alarm(WEAK_THRESHOLD, text, OTHER_TARGET)
    if not compared.can_be_shown and diagnosis.cause is not Cause.SIMPLER_MODEL:
        return Alarm(
            NOT_BETTER, text, f"more {unit} to judge it by: {count:,} would not show that a perfect model is better"
        )
    overrides = " or ".join(diagnosis.overrides[:2])
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


def diagnose_run(
    metrics: SplitMetrics, decision: Decision, baseline: BaselineMetrics | None, training: Training
) -> Diagnosis:
    """Return the cause of the errors of a model. `metrics`: metrics of the split by which the model is judged."""
    compared = next(iter([] if baseline is None else baseline.comparison), None)
    is_troubled = (
        any(alarm.kind in UNTRAINED for alarm in metrics.alarms)
        or (compared is not None and not compared.is_better and not compared.is_too_easy)
        or any(_is_unseparated(guarantee) for guarantee in decision.targets)
    )
    return diagnose(training, metrics, compared, is_troubled=is_troubled)


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
    training = training or Training()
    diagnosis = diagnose_run(metrics, decision, baseline, training)
    return next(_steps(metrics, split, decision, baseline, training, diagnosis))


def _steps(
    metrics: SplitMetrics,
    split: str,
    decision: Decision,
    baseline: BaselineMetrics | None,
    training: Training,
    diagnosis: Diagnosis,
) -> Iterator[str]:
    """Yield recommended steps, the most urgent step first. The last step applies to every model."""
    kinds = {alarm.kind for alarm in metrics.alarms}
    if NO_POSITIVE in kinds and decision.positive is not None:
        yield f"get rows of {decision.positive}: {split} has none among {metrics.rows:,}, so its recall is unknown."
    is_lost, can_raise = bool(kinds & LOST), decision.positive is not None and decision.rule == "argmax"
    if is_lost and can_raise and diagnosis.cause is not Cause.LOST_CLASS and is_unbalanced(metrics.support_by_class):
        yield _train_again("decision.min_recall=0.8")
    if kinds & UNTRAINED or diagnosis.cause in (Cause.SHARED_GROUPS, Cause.LOST_CLASS):
        yield from _tries(diagnosis, split)
    useless = {alarm.label for alarm in metrics.alarms if alarm.kind == USELESS_ALERTS}
    for guarantee in (guarantee for guarantee in decision.targets if guarantee.label in useless):
        yield (
            f"look at the rows of {guarantee.label} with the lowest probabilities in {training.rows_file} (split "
            f"threshold): they set the threshold, among {guarantee.rows:,} rows. Correct wrong labels, get more such "
            f"rows, or set decision.{guarantee.rule} to {OTHER_TARGET}."
        )
    if baseline is not None and baseline.comparison:
        # If more rows can show the difference at the threshold, the threshold may be right.
        unclear = [entry for entry in _at_threshold(baseline.comparison, decision) if _rows_to_tell(entry, 1)]
        for entry in [*([] if baseline.comparison[0].is_better else baseline.comparison[:1]), *unclear]:
            yield from _steps_to_beat(entry, Sampled.of(baseline.rows, metrics.groups), metrics, split, diagnosis)
    if WEAK_THRESHOLD in kinds or unproven_labels(decision, metrics):
        key = f"decision.{decision.rule}" if decision.targets else "threshold"
        yield f"set {key} to {OTHER_TARGET}: this threshold is not shown to be of use."
    if metrics.alarms:
        yield (
            f"look at the rows of {training.rows_file} that are wrong with the highest probability: do the labels "
            "follow from the sequences?"
        )
    if metrics.used_for:
        yield _train_again(*HOLD_OUT_TEST)
    for guarantee in decision.targets:
        if guarantee.rule != "cost" and not guarantee.backed:
            yield from _back_guarantee(guarantee, training, diagnosis, split)
    yield from _tries(diagnosis, split)
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
    compared: MetricComparison, sampled: Sampled, metrics: SplitMetrics, split: str, diagnosis: Diagnosis
) -> Iterator[str]:
    """Yield recommended steps for a model that is not shown to beat the baseline on a split."""
    # If the model is better, more rows can show this. If the model is not better, more rows for evaluation do not
    # improve it.
    if diagnosis.cause is Cause.SIMPLER_MODEL:
        yield from _tries(diagnosis, split)
        yield f"use the simpler model if it is enough{_because(diagnosis)}."
    learns = compared.difference <= 0 and compared.can_be_shown
    if (diagnosis.cause is Cause.FEW_STEPS or learns) and compared.model < 1:
        yield from _tries(diagnosis, split)
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
    yield from _tries(diagnosis, split)


def _tries(diagnosis: Diagnosis, split: str) -> Iterator[str]:
    """Yield the step to train again with the first override against the cause.

    On a split other than validation, the step advises to compare runs by validation scores, because the rows that
    select a run cannot judge this run. Another division of the rows, or a refit, leaves nothing to compare by.
    """
    is_comparable = split != "validation" and diagnosis.cause is not Cause.SHARED_GROUPS
    compare = f"; compare the runs by validation scores, as {split} judges the last one"
    for override in diagnosis.overrides[:1]:
        more = compare if is_comparable and override != REFIT else ""
        yield f"train again with {override}{_because(diagnosis)}{more}."


def _because(diagnosis: Diagnosis) -> str:
    return f", because of {diagnosis.cause}" + (f" ({diagnosis.evidence})" if diagnosis.evidence else "")


def _train_again(override: str, reason: str | None = None) -> str:
    return f"train again with {override}" + ("." if reason is None else f", {reason}.")


def _is_unseparated(guarantee: Guarantee) -> bool:
    """Return True if a guarantee has enough rows, but the model does not separate the classes well enough."""
    if guarantee.rule == "cost" or guarantee.backed or guarantee.provisional:
        return False
    return bool(guarantee.conflict) or not guarantee.needed or guarantee.needed <= guarantee.rows


def _back_guarantee(guarantee: Guarantee, training: Training, diagnosis: Diagnosis, split: str) -> Iterator[str]:
    """Yield recommended steps that would back a guarantee."""
    key = f"decision.{guarantee.rule}"
    if guarantee.provisional:
        yield _train_again(
            "decision.provisional=false decision.holdout=0.5", "so that held-out rows back the guarantee"
        )
        return
    if _is_unseparated(guarantee):
        yield from _tries(diagnosis, split)
        yield f"set a lower {key} than {guarantee.target:g}: the model does not separate the classes well enough."
        return
    assert guarantee.needed is not None
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
