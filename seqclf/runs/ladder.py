"""Comparison of a trained model with simpler ones on the last split: the order-blind baseline and the ladder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.baseline_scores import BaselineScores, score_baseline
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.comparison import MetricComparison, RowPredictions, deciding_metric
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.ladder import (
    MIX,
    NETWORK,
    ORDER_BLIND,
    RUNGS,
    WIDE,
    Contender,
    JudgedRows,
    Rung,
    build_ladder,
    most_probable,
)
from seqclf.evaluation.results import BaselineCandidate, BaselineMetrics, Evaluation, SplitMetrics
from seqclf.report.model_card import network_kind
from seqclf.runs.mix import Mix
from seqclf.training.options import TrainConfig


class SimplerModels(NamedTuple):
    """The order-blind baseline, None if it is left out, and the ladder, empty if there is nothing to compare."""

    baseline: BaselineMetrics | None
    ladder: tuple[Rung, ...]


def compare_with_simpler(
    config: TrainConfig,
    dataset: Dataset,
    evaluation: Evaluation,
    metrics: SplitMetrics,
    others: Mapping[str, Contender],
    *,
    with_baseline: bool,
) -> SimplerModels:
    """Compare the trained model with simpler ones on the same rows of the last split.

    `metrics`: metrics of the trained model on the last split. `others`: dict name of a rung → another model, with
    predictions of all rows of the last split. `with_baseline`: fit the order-blind baseline. The rungs share the rows
    that the baseline predicts, which are a sample of a large split.
    """
    outputs = evaluation.last
    scored = score_baseline(dataset) if with_baseline else None
    positions = np.arange(len(outputs.labels)) if scored is None else scored.last_rows.positions
    rows = JudgedRows(
        outputs.labels[positions],
        dataset.classes,
        dataset.positive,
        config.monitor,
        group_codes(None if outputs.groups is None else outputs.groups[positions]),
    )
    name = MIX if NETWORK in others else NETWORK
    whole = Contender(
        " and ".join(other.model for other in others.values() if name == MIX) or network_kind(config.model),
        RowPredictions(evaluation.predicted, evaluation.probabilities),
        metrics,
    )
    contenders = {key: contender.take(positions) for key, contender in {**others, name: whole}.items()}
    baseline, compared = None, dict[tuple[str, str], list[MetricComparison]]()
    if scored is not None:
        # Validation chooses the order-blind model, by the deciding metric. A choice by test rows would make the chosen
        # model look too good, and a choice by another metric would make the trained model look too good.
        chosen = scored.scores.best_model(deciding_metric(config.monitor))
        order_blind = scored.last_rows.predictions[chosen]
        comparison = rows.compare(contenders[name].predictions, order_blind)
        baseline = _baseline_metrics(scored.scores, chosen, evaluation.split, config.monitor, comparison)
        contenders[ORDER_BLIND] = Contender(chosen, order_blind, baseline)
        compared[name, ORDER_BLIND] = comparison
    ordered = {rung: contenders[rung] for rung in RUNGS if rung in contenders}
    return SimplerModels(baseline, build_ladder(ordered, rows, compared))


def mixed_contenders(config: TrainConfig, mix: Mix | None) -> dict[str, Contender]:
    """Return the parts of a mixture as models of their own.

    With a share of 0 these are the wide paths alone, because the network is the trained model itself.
    """
    if mix is None:
        return {}
    titles = {WIDE: " and ".join(mix.choice.paths), NETWORK: network_kind(config.model)}
    names = (WIDE, NETWORK) if mix.choice.share else (WIDE,)
    return {name: Contender(titles[name], most_probable(softmax(mix.logits[name]))) for name in names}


def _baseline_metrics(
    scores: BaselineScores, chosen: str, split: str, monitor: str, comparison: list[MetricComparison]
) -> BaselineMetrics:
    """Return the metrics of the chosen order-blind model on the last split, with the trained model compared with it."""
    metric = deciding_metric(monitor)
    on_validation, on_last = (scores.values(metric, name) for name in (scores.judge, split))
    return BaselineMetrics(
        **vars(scores.models[chosen][split]),
        model=chosen,
        split=split,
        candidates=[
            BaselineCandidate(model=name, validation=on_validation[name], last=on_last[name]) for name in scores.models
        ],
        comparison=comparison,
    )
