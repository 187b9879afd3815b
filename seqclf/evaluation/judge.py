"""Judging: scores of a network and of other models become its decision, metrics, alarms and comparisons.

Nothing here reads files or runs a model, so scores that were made elsewhere are judged the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.storage.dataset import THRESHOLD
from seqclf.errors import InputError
from seqclf.evaluation.alarms import KNOWN_RECALL, LEARN_MORE, REGULARIZE, WEAK_THRESHOLD
from seqclf.evaluation.baseline_alarms import baseline_alarms
from seqclf.evaluation.baseline_scores import best_model, metrics_of
from seqclf.evaluation.calibration import Calibration, calibration_of, fit_temperature
from seqclf.evaluation.choose_decision import at_the_same_ranks, choose_decision
from seqclf.evaluation.comparison import Comparison, RowPredictions, compare_models, deciding_metric
from seqclf.evaluation.decision import FOLDS, RULES, Decision, Guarantee
from seqclf.evaluation.metrics import classification_metrics
from seqclf.evaluation.next_step import next_step
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.result import Facts, ModelResult, RunResult
from seqclf.evaluation.scores import NETWORK, ORDER_BLIND, ScoredRows, Scores, network_of, positions_in, rows_like
from seqclf.evaluation.split_result import WeightedMetrics, judge_split
from seqclf.evaluation.targets import forcing_rows, target_rows
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system import progress


def judge(models: Sequence[Scores], facts: Facts, decision: DecisionOptions | Decision) -> RunResult:
    """Judge a network by its scores.

    `models`: scores of models, from the weakest to the strongest; exactly one has the role `network`, and its last
    split judges it. Simpler models have scores of this split, order-blind ones also of validation, which chooses among
    them. `decision`: a decision, or targets, whose thresholds are set on the split `threshold`, on the rows of all
    folds (see `Scores.basis`), or else on validation. Rows with folds are judged at the thresholds that the other folds
    set.

    Raises InputError for a target without such rows, and for scores of other rows, classes or labels.
    """
    network = network_of(models)
    for scores in models:
        if scores.classes != network.classes:
            raise InputError(f"scores of {scores.name}", "are for other classes", f"score {', '.join(network.classes)}")
    options = None if isinstance(decision, Decision) else decision
    chosen = decision if isinstance(decision, Decision) else decide(models, decision)
    rows = judged_rows(network, chosen, options)
    splits = {split: part for split, part in rows.items() if split != THRESHOLD}
    last, used_for = list(splits)[-1], _used_for(options, chosen.rule, network, facts)
    if splits[last].by_folds is not None:  # no row is judged at a threshold that it set
        used_for[last] = [choice for choice in used_for.get(last, []) if choice != "threshold"]
    metrics = {
        split: judge_split(
            part,
            network.classes,
            network.positive,
            chosen,
            with_intervals=split != "train",  # training rows do not represent new data
            used_for=used_for.get(split),
        )
        for split, part in progress.track(splits.items(), "computing confidence intervals", total=len(splits))
    }
    setting, calibration = None, None
    if options is not None and (threshold_rows := network.threshold_rows) is not None:
        setting = options, chosen, threshold_rows, network.classes
        calibration = _calibration(splits, threshold_rows, options)
    baseline, others = _compare(models, replace(network, splits=splits), last, chosen, facts.monitor)
    result = RunResult(
        splits=metrics,
        rows=rows,
        decision=chosen,
        calibration=calibration,
        baseline=baseline,
        no_baseline=facts.no_baseline if baseline is None else None,
        others=others,
        targets=() if setting is None else tuple(target_rows(*setting, network.basis)),
        forcing=() if setting is None else tuple(forcing_rows(*setting)),
        data=facts.data,
        leaks=facts.leaks,
        holdout_rows=sum(len(part.labels) for part in network.held_out.values()),
        trained_steps=facts.trained_steps,
    )
    result = _with_known_rows(_with_baseline_alarms(result))
    return replace(result, next_step=next_step(result, facts)) if facts.settings else result


def decide(models: Sequence[Scores], options: DecisionOptions) -> Decision:
    """Return the decision that `judge` would choose for these options."""
    network = network_of(models)
    return _decide(options, network, network.threshold_rows)


def _decide(options: DecisionOptions, network: Scores, rows: ScoredRows | None) -> Decision:
    """`rows`: those that set thresholds."""
    if rows is not None:
        with progress.stage("choosing the decision threshold"):
            setting = (rows.logits, rows.labels, network.classes, network.positive, rows.group, rows.unit)
            return choose_decision(options, *setting, network.basis, rows.weights, rows.costs)
    if all(getattr(options, rule) is None for rule in RULES):
        return Decision(positive=network.positive)
    raise InputError("decision", "there are no rows to set its thresholds", "score the split validation too")


def judged_rows(network: Scores, decision: Decision, options: DecisionOptions | None) -> dict[str, ScoredRows]:
    """Return the rows of each split, held-out ones last, with the predictions by folds of rows that have folds.

    `options`: those that chose the decision, None for a decision by hand.
    """
    splits = {split: rows for split, rows in network.splits.items() if split != THRESHOLD}
    rows, last = network.threshold_rows, list(splits)[-1]
    if options and rows is not None and decision.rule != "argmax":
        splits[last] = splits[last]._replace(by_folds=_by_folds(options, network, rows, splits[last], decision))
    return {**splits, **network.held_out}


def _by_folds(
    options: DecisionOptions, network: Scores, rows: ScoredRows, judged: ScoredRows, shipped: Decision
) -> np.ndarray | None:
    """Return the predicted class numbers (N,) of `judged`, None without folds.

    The `rows` of the other folds set the threshold of a fold, at the rank nearest to that of all in `shipped`.
    """
    if rows.fold is None or judged.fold is None or len(np.unique(rows.fold)) < 2:
        return None
    predicted = np.empty(len(judged.labels), np.int64)
    for fold in np.unique(judged.fold):
        others, of_fold = rows.take(np.flatnonzero(rows.fold != fold)), judged.fold == fold
        same = at_the_same_ranks(options, shipped, others.labels, network.classes, others.group)
        predicted[of_fold] = _decide(same, network, others).choose(judged.logits[of_fold])
    return predicted


def _used_for(options: DecisionOptions | None, rule: str, network: Scores, facts: Facts) -> dict[str, list[str]]:
    """Return dict split → choices about the model and the decision that its rows made."""
    made: list[str] = []
    if options is not None and (network.basis == FOLDS or not network.held_out):
        made = [*(["threshold"] if rule != "argmax" else []), *(["temperature"] if options.calibrate else [])]
    with_folds = [split for split, rows in network.splits.items() if network.basis == FOLDS and rows.fold is not None]
    return {**dict.fromkeys(with_folds, made), "validation": [*facts.chosen, *made]}


def _calibration(splits: Mapping[str, ScoredRows], rows: ScoredRows, options: DecisionOptions) -> Calibration:
    temperature = fit_temperature(rows.logits, rows.labels)
    scored = {split: (part.logits, part.labels) for split, part in splits.items()}
    return calibration_of(scored, temperature, options.calibrate)


def _compare(
    models: Sequence[Scores], network: Scores, split: str, decision: Decision, monitor: str | None
) -> tuple[ModelResult | None, tuple[ModelResult, ...]]:
    """Return the results of the chosen order-blind model, None without one, and of the heads of the network."""
    heads, order_blind = list[ModelResult](), list[Scores]()
    for scores in models:
        if split in scores.splits and scores.role == ORDER_BLIND:
            order_blind.append(scores)
        elif split in scores.splits and scores.role != NETWORK:
            heads.append(compare_with(network, split, decision, scores, monitor=monitor))
    if not order_blind:
        return None, tuple(heads)
    # Validation chooses the order-blind model, by the deciding metric. A choice by test rows would make the chosen
    # model look too good, and a choice by another metric would make the trained model look too good.
    metric = deciding_metric(monitor)
    scored = {scores.model: metrics_of(scores, network.positive) for scores in order_blind}
    best = best_model(scored, metric)
    chosen = next(scores for scores in order_blind if scores.model == best)
    positions = positions_in(chosen, network, split)  # large splits are sampled
    sample = replace(network, splits={split: network.splits[split].take(positions)})
    candidates = {
        name: {part: found.value(metric) for part, found in by_split.items()} for name, by_split in scored.items()
    }
    return compare_with(sample, split, decision, chosen, monitor=monitor, candidates=candidates), tuple(heads)


def compare_with(
    network: Scores,
    split: str,
    decision: Decision,
    other: Scores,
    other_decision: Decision | None = None,
    *,
    monitor: str | None,
    **facts: Any,
) -> ModelResult:
    """Return the result of another model on the rows of a split of a judged network, which it is compared with.

    `other_decision`: None for the most probable classes. `facts`: other attributes of the result. Raises InputError for
    other rows, labels or classes.
    """
    if other.classes != network.classes or split not in other.splits:
        problem = f"hold no rows of {split}" if split not in other.splits else "are for other classes"
        raise InputError(f"scores of {other.model}", problem, "score the same rows")
    rows, own = rows_like(other, network, split), network.splits[split]
    probabilities, predicted = rows.probabilities(other_decision), rows.predicted(other_decision)
    given = own.labels.astype(np.int64), probabilities, network.classes, network.positive, predicted
    metrics = classification_metrics(*given)
    facts["weighted"] = WeightedMetrics.of(*given, own.weights)
    targets = () if network.positive else decision.targets
    comparisons = compare_rows(own, decision, rows, other_decision, network, monitor, targets)
    return ModelResult(**vars(metrics), name=other.name, kind=other.model, comparisons=comparisons, **facts)


def compare_rows(
    rows: ScoredRows,
    decision: Decision | None,
    others: ScoredRows,
    other_decision: Decision | None,
    network: Scores,
    monitor: str | None,
    targets: Sequence[Guarantee] = (),
) -> list[Comparison]:
    """Compare the rows of a network with `others`, those of another model in the same order (see `compare_models`).

    A decision of None predicts the most probable classes. `network`: names the classes. `targets`: of labels of several
    classes, whose alerts are compared.
    """
    positive = None if network.positive is None else network.classes.index(network.positive)
    model, baseline = (
        RowPredictions(part.predicted(by), ranking_scores(np.array(part.probabilities(by))))
        for part, by in ((rows, decision), (others, other_decision))
    )
    labels = {target.label: network.classes.index(target.label) for target in targets}
    return compare_models(
        rows.labels, model, baseline, positive, monitor, rows.group, targets=labels, weights=rows.weights
    )


def _with_known_rows(result: RunResult) -> RunResult:
    """Return the result with another remedy than more epochs for a model that knows its training rows."""
    if "train" not in result.splits or result.splits["train"].recall < KNOWN_RECALL:
        return result
    known = f"{REGULARIZE}, as it knows its training rows"
    splits = {
        name: replace(
            metrics,
            alarms=[replace(alarm, remedy=alarm.remedy.replace(LEARN_MORE, known)) for alarm in metrics.alarms],
        )
        for name, metrics in result.splits.items()
    }
    return replace(result, splits=splits)


def _with_baseline_alarms(result: RunResult) -> RunResult:
    baseline, judged = result.baseline, result.metrics
    if baseline is None:
        return result
    by_groups = judged.groups is not None and judged.groups.unit == "group"
    sampled = (judged.groups.count, "groups") if by_groups and judged.groups else (baseline.rows, "rows")
    alarms = baseline_alarms(baseline.comparisons, result.decision, *sampled)
    # The threshold is what people run, so its alarms come first.
    alarms = sorted([*judged.alarms, *alarms], key=lambda alarm: alarm.kind != WEAK_THRESHOLD)
    judged = replace(judged, alarms=alarms)
    return replace(result, splits={**result.splits, result.split: judged})
