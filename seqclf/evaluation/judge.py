"""Judging: scores of a model and of simpler ones become its decision, metrics, alarms, ladder and comparison.

Nothing here reads files or runs a model, so scores that were made elsewhere are judged the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.data.storage.store import SplitCounts
from seqclf.errors import InputError
from seqclf.evaluation.alarms import KNOWN_RECALL, LEARN_MORE, REGULARIZE, WEAK_THRESHOLD
from seqclf.evaluation.baseline_alarms import Sampled, baseline_alarms
from seqclf.evaluation.baseline_scores import BaselineScores, baseline_metrics
from seqclf.evaluation.calibration import Calibration, fit_temperature
from seqclf.evaluation.choose_decision import at_the_same_ranks, choose_decision
from seqclf.evaluation.comparison import MetricComparison, RowPredictions, deciding_metric
from seqclf.evaluation.decision import FOLDS, RULES, Decision
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.forcing_rows import forcing_rows
from seqclf.evaluation.ladder import NEW, OLD, Contender, JudgedRows, Rung, build_ladder, most_probable
from seqclf.evaluation.ladder import ORDER_BLIND as ORDER_BLIND_RUNG
from seqclf.evaluation.next_step import FinishedTraining, next_step
from seqclf.evaluation.results import (
    BaselineCandidate,
    BaselineMetrics,
    Evaluation,
    SplitMetrics,
    SplitOutputs,
    calibration_of,
    evaluate_split,
)
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.scores import NETWORK, ORDER_BLIND, Scores, positions_in, taken
from seqclf.evaluation.target_table import target_rows
from seqclf.settings.decision import DecisionOptions
from seqclf.system import progress
from seqclf.system.json_result import JsonObject


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Knowledge of a run beside the scores of its models (see `RunResult` for other attributes).

    `monitor`: validation metric that chose the epoch, None for the last step. `chosen`: other choices of validation
    rows about the model. `no_baseline`: why there is none. `training`: what the next step depends on, None without a
    training. `history`: rows of metrics.csv. `warnings`: lines about the data and the network.
    """

    monitor: str | None = None
    chosen: tuple[str, ...] = ()
    no_baseline: str | None = None
    training: FinishedTraining | None = None
    data: Mapping[str, SplitCounts] = field(default_factory=dict)
    leaks: LeakReport | None = None
    trained_steps: int | None = None
    history: Sequence[JsonObject] = ()
    warnings: Sequence[str] = ()


class Judged(NamedTuple):
    """Result of judging. `outputs`: dict split → outputs, held-out rows included."""

    result: RunResult
    evaluation: Evaluation
    outputs: Mapping[str, SplitOutputs]


def judge(contenders: Sequence[Scores], facts: Facts, decision: DecisionOptions | Decision) -> Judged:
    """Judge a model by its scores.

    `contenders`: scores of models, from the weakest to the strongest; exactly one has the role `network`, and its last
    split judges it. Simpler models have scores of this split, order-blind ones also of validation, which chooses among
    them. `decision`: a decision, or targets, whose thresholds are set on the split `threshold`, on the rows of all
    folds (see `Scores.basis`), or else on validation. Rows with folds are judged at the thresholds that the other folds
    set.

    Raises InputError for a target without such rows, and for scores of other rows, classes or labels.
    """
    network = _network(contenders)
    for scores in contenders:
        if scores.classes != network.classes:
            raise InputError(f"scores of {scores.name}", "are for other classes", f"score {', '.join(network.classes)}")
    options = None if isinstance(decision, Decision) else decision
    held_out, basis = network.splits.get(threshold_split(network)), network.basis
    chosen = decision if isinstance(decision, Decision) else _decide(decision, network, held_out, basis)
    evaluation = _evaluation(network, options, chosen)
    splits = evaluation.outputs
    used_for = _used_for(options, chosen.rule, network, facts)
    if evaluation.last.predicted is not None:  # no row is judged at a threshold that it set
        used_for[evaluation.split] = [choice for choice in used_for.get(evaluation.split, []) if choice != "threshold"]
    metrics = {
        split: evaluate_split(
            outputs,
            network.classes,
            network.positive,
            chosen,
            with_intervals=split != "train",  # training rows do not represent new data
            used_for=used_for.get(split),
        )
        for split, outputs in progress.track(splits.items(), "computing confidence intervals", total=len(splits))
    }
    setting = None if options is None or held_out is None else (options, chosen, held_out, network.classes)
    baseline, ladder = _compare(contenders, network, evaluation, metrics[evaluation.split], facts.monitor)
    result = RunResult(
        splits=metrics,
        decision=chosen,
        calibration=_calibration(options, splits, held_out),
        baseline=baseline,
        no_baseline=facts.no_baseline if baseline is None else None,
        ladder=ladder,
        targets=() if setting is None else tuple(target_rows(*setting, _unit(setting[2]), basis)),
        forcing=() if setting is None else tuple(forcing_rows(*setting)),
        data=facts.data,
        leaks=facts.leaks,
        holdout_rows=sum(len(rows.labels) for rows in _held_out(network).values()),
        trained_steps=facts.trained_steps,
    )
    result = _with_known_rows(_with_baseline_alarms(result))
    if facts.training is not None:
        result = replace(result, next_step=next_step(result, facts.training))
    return Judged(result, evaluation, {**splits, **_held_out(network)})


def judged_at(contenders: Sequence[Scores], result: RunResult, options: DecisionOptions) -> Judged:
    """Return a result of `judge`, with the outputs that it is about. `options`: those that set its decision."""
    network = _network(contenders)
    evaluation = _evaluation(network, options, result.decision)
    return Judged(result, evaluation, {**evaluation.outputs, **_held_out(network)})


def _evaluation(network: Scores, options: DecisionOptions | None, chosen: Decision) -> Evaluation:
    """Rows with folds are judged at the thresholds that the other folds set. `options`: None for a decision by hand."""
    splits = {split: outputs for split, outputs in network.splits.items() if split != THRESHOLD}
    rows, last = network.splits.get(threshold_split(network)), list(splits)[-1]
    if options and rows is not None and chosen.rule != "argmax":
        predicted = _predicted_by_folds(options, network, rows, splits[last], chosen, network.basis)
        splits[last] = splits[last]._replace(predicted=predicted)
    return Evaluation(splits, chosen)


def _with_known_rows(result: RunResult) -> RunResult:
    """Return the result with another remedy than more epochs for a model that knows its training rows."""
    if "train" not in result.splits or result.splits["train"].recall < KNOWN_RECALL:
        return result
    splits = {}
    for name, metrics in result.splits.items():
        alarms = [
            replace(alarm, remedy=alarm.remedy.replace(LEARN_MORE, f"{REGULARIZE}, as it knows its training rows"))
            for alarm in metrics.alarms
        ]
        splits[name] = replace(metrics, alarms=alarms)
    return replace(result, splits=splits)


def _network(contenders: Sequence[Scores]) -> Scores:
    return next(scores for scores in contenders if scores.role == NETWORK)


def _held_out(network: Scores) -> dict[str, SplitOutputs]:
    """Return the outputs of held-out rows, under `THRESHOLD`: none if validation rows with a fold set thresholds."""
    rows = network.splits.get(THRESHOLD)
    return {} if rows is None or rows.fold is not None else {THRESHOLD: rows}


def threshold_split(network: Scores) -> str:
    """Return the split whose rows set thresholds and the temperature, if the scores have it: never train.

    It is `threshold`, the first split with folds, or else validation.
    """
    folds = [split for split, outputs in network.splits.items() if outputs.fold is not None and split != "train"]
    return next((split for split in (THRESHOLD, *folds) if split in network.splits), "validation")


def decide(contenders: Sequence[Scores], options: DecisionOptions) -> Decision:
    """Return the decision that `judge` would choose for these options."""
    network = _network(contenders)
    return _decide(options, network, network.splits.get(threshold_split(network)), network.basis)


def _predicted_by_folds(
    options: DecisionOptions,
    scores: Scores,
    rows: SplitOutputs,
    judged: SplitOutputs,
    shipped: Decision,
    basis: str,
) -> np.ndarray | None:
    """Return the predicted class numbers (N,) of `judged`, None without folds.

    The `rows` of the other folds set the threshold of a fold, at the rank nearest to that of all in `shipped`.
    """
    if rows.fold is None or judged.fold is None or len(np.unique(rows.fold)) < 2:
        return None
    predicted = np.empty(len(judged.labels), np.int64)
    for fold in np.unique(judged.fold):
        others = taken(rows, np.flatnonzero(rows.fold != fold))
        same = at_the_same_ranks(options, shipped, others.labels, scores.classes, group_codes(others.groups))
        decision = _decide(same, scores, others, basis)
        of_fold = judged.fold == fold
        predicted[of_fold] = decision.choose(judged.logits[of_fold])
    return predicted


def _unit(rows: SplitOutputs) -> str:
    return "sequence" if rows.group_names is None else "group"


def _decide(options: DecisionOptions, scores: Scores, rows: SplitOutputs | None, basis: str) -> Decision:
    if rows is None:
        if all(getattr(options, rule) is None for rule in RULES):
            return Decision(positive=scores.positive)
        raise InputError("decision", "there are no rows to set its thresholds", "score the split validation too")
    with progress.stage("choosing the decision threshold"):
        return choose_decision(
            options,
            rows.logits,
            rows.labels,
            scores.classes,
            scores.positive,
            group_codes(rows.groups),
            _unit(rows),
            basis,
        )


def _used_for(options: DecisionOptions | None, rule: str, network: Scores, facts: Facts) -> dict[str, list[str]]:
    """Return dict split → choices about the model and the decision that its rows made."""
    made: list[str] = []
    if options is not None and (network.basis == FOLDS or not _held_out(network)):
        made = [*(["threshold"] if rule != "argmax" else []), *(["temperature"] if options.calibrate else [])]
    folds = {
        split: made for split, outputs in network.splits.items() if network.basis == FOLDS and outputs.fold is not None
    }
    return {**folds, "validation": [*facts.chosen, *made]}


def _calibration(
    options: DecisionOptions | None, splits: Mapping[str, SplitOutputs], held_out: SplitOutputs | None
) -> Calibration | None:
    if options is None or held_out is None:
        return None
    return calibration_of(splits, fit_temperature(held_out.logits, held_out.labels), options.calibrate)


def _compare(
    contenders: Sequence[Scores],
    network: Scores,
    evaluation: Evaluation,
    metrics: SplitMetrics,
    monitor: str | None,
) -> tuple[BaselineMetrics | None, tuple[Rung, ...]]:
    """Return the metrics of the chosen order-blind model, or None, and the ladder on the rows of such models."""
    split, outputs = evaluation.split, evaluation.last
    compared = [scores for scores in contenders if split in scores.splits]
    order_blind = [scores.labelled(network) for scores in compared if scores.role == ORDER_BLIND]
    between = [scores for scores in compared if scores.role not in (ORDER_BLIND, NETWORK)]
    whole = replace(network, splits=evaluation.outputs)
    positions = positions_in(order_blind[0], whole, split) if order_blind else np.arange(len(outputs.labels))
    rows = _rows(network, evaluation, monitor, positions)
    trained = Contender(network.model, RowPredictions(evaluation.predicted, evaluation.probabilities), metrics)
    ladder = {scores.name: Contender(scores.model, _all_rows(scores, whole, split)) for scores in between}
    ladder = {name: model.take(positions) for name, model in {**ladder, network.name: trained}.items()}
    if not order_blind:
        return None, build_ladder(ladder, rows)
    # Validation chooses the order-blind model, by the deciding metric. A choice by test rows would make the chosen
    # model look too good, and a choice by another metric would make the trained model look too good.
    scored = baseline_metrics(order_blind)
    chosen = scored.best_model(deciding_metric(monitor))
    predictions = next(scores for scores in order_blind if scores.model == chosen).predictions(split)
    comparison = rows.compare(ladder[network.name].predictions, predictions)
    baseline = _baseline(scored, chosen, split, monitor, comparison)
    ladder = {ORDER_BLIND_RUNG: Contender(chosen, predictions, baseline), **ladder}
    return baseline, build_ladder(ladder, rows, {(network.name, ORDER_BLIND_RUNG): comparison})


def compare_with(
    judged: Judged, network: Scores, old: Scores, decision: Decision | None, monitor: str | None
) -> tuple[Rung, ...]:
    """Return the rungs of another model, under its `decision`, and of a judged network on the same rows.

    Raises InputError for other rows, labels or classes.
    """
    evaluation, split = judged.evaluation, judged.evaluation.split
    if old.classes != network.classes or split not in old.splits:
        problem = f"hold no rows of {split}" if split not in old.splits else "are for other classes"
        raise InputError(f"scores of {old.model}", problem, "score the same rows")
    whole = replace(network, splits=evaluation.outputs)
    rows = _rows(network, evaluation, monitor, np.arange(len(evaluation.last.labels)))
    of_new = RowPredictions(evaluation.predicted, evaluation.probabilities)
    contenders = {
        OLD: Contender(old.model, _all_rows(old, whole, split, decision)),
        NEW: Contender(network.model, of_new, judged.result.metrics),
    }
    return build_ladder(contenders, rows)


def _rows(network: Scores, evaluation: Evaluation, monitor: str | None, positions: np.ndarray) -> JudgedRows:
    outputs = evaluation.last
    targets = () if network.positive else evaluation.decision.targets
    return JudgedRows(
        outputs.labels[positions],
        network.classes,
        network.positive,
        monitor,
        group_codes(None if outputs.groups is None else outputs.groups[positions]),
        {guarantee.label: network.classes.index(guarantee.label) for guarantee in targets},
    )


def _all_rows(scores: Scores, whole: Scores, split: str, decision: Decision | None = None) -> RowPredictions:
    """Return the predictions of a model in the order of all rows of a split. Raises InputError if it lacks some.

    `decision`: None for the most probable class.
    """
    positions = positions_in(scores, whole, split)
    if not np.array_equal(np.sort(positions), np.arange(len(whole.splits[split].labels))):
        raise InputError(f"scores of {scores.name}", f"lack rows of {split}, or repeat them", "score the same rows")
    order = np.argsort(positions)
    if decision is None:
        return most_probable(scores.probabilities(split)[order])
    logits = scores.splits[split].logits[order]
    return RowPredictions(decision.choose(logits), decision.probabilities(logits))


def _baseline(
    scored: BaselineScores, chosen: str, split: str, monitor: str | None, comparison: list[MetricComparison]
) -> BaselineMetrics:
    metric = deciding_metric(monitor)
    on_validation, on_last = (scored.values(metric, name) for name in (scored.judge, split))
    return BaselineMetrics(
        **vars(scored.models[chosen][split]),
        model=chosen,
        split=split,
        candidates=[
            BaselineCandidate(model=name, validation=on_validation[name], last=on_last[name]) for name in scored.models
        ],
        comparison=comparison,
    )


def _with_baseline_alarms(result: RunResult) -> RunResult:
    baseline, judged = result.baseline, result.metrics
    if baseline is None:
        return result
    sampled = Sampled.of(baseline.rows, judged.groups)
    alarms = baseline_alarms(baseline.comparison, result.decision, sampled)
    # The threshold is what people run, so its alarms come first.
    alarms = sorted([*judged.alarms, *alarms], key=lambda alarm: alarm.kind != WEAK_THRESHOLD)
    judged = replace(judged, alarms=alarms)
    return replace(result, splits={**result.splits, result.split: judged})
