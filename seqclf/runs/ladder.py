"""Comparison of a trained model with simpler ones on the last split: the order-blind baseline and the ladder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.baselines.baseline_scores import BaselineScores, score_baseline
from seqclf.evaluation.ladder import (
    NETWORK,
    ORDER_BLIND,
    Contender,
    JudgedRows,
    Rung,
    build_ladder,
)
from seqclf.evaluation.results import BaselineCandidate, BaselineMetrics, Evaluation, SplitMetrics
from seqclf.evaluation.uncertainty.comparison import MetricComparison, RowPredictions, deciding_metric
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.report.model_card import network_kind
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
    between: Mapping[str, Contender],
    *,
    with_baseline: bool,
) -> SimplerModels:
    """Compare the trained model with simpler ones on the same rows of the last split.

    `metrics`: metrics of the trained model on the last split. `between`: dict name of a rung → model, with predictions
    of all rows of the last split, for the rungs between the baseline and the trained model, from the lowest to the
    highest. `with_baseline`: fit the order-blind baseline. The rungs share the rows that the baseline predicts, which
    are a sample of a large split.
    """
    outputs, targets = evaluation.last, () if dataset.positive else evaluation.decision.targets
    scored = score_baseline(dataset) if with_baseline else None
    positions = np.arange(len(outputs.labels)) if scored is None else scored.last_rows.positions
    rows = JudgedRows(
        outputs.labels[positions],
        dataset.classes,
        dataset.positive,
        config.monitor,
        group_codes(None if outputs.groups is None else outputs.groups[positions]),
        {guarantee.label: dataset.classes.index(guarantee.label) for guarantee in targets},
    )
    predictions = RowPredictions(evaluation.predicted, evaluation.probabilities)
    trained = Contender(network_kind(config.model), predictions, metrics)
    ladder = {name: model.take(positions) for name, model in {**between, NETWORK: trained}.items()}
    baseline, compared = None, dict[tuple[str, str], list[MetricComparison]]()
    if scored is not None:
        # Validation chooses the order-blind model, by the deciding metric. A choice by test rows would make the chosen
        # model look too good, and a choice by another metric would make the trained model look too good.
        chosen = scored.scores.best_model(deciding_metric(config.monitor))
        order_blind = scored.last_rows.predictions[chosen]
        comparison = rows.compare(ladder[NETWORK].predictions, order_blind)
        baseline = _baseline_metrics(scored.scores, chosen, evaluation.split, config.monitor, comparison)
        ladder = {ORDER_BLIND: Contender(chosen, order_blind, baseline), **ladder}
        compared[NETWORK, ORDER_BLIND] = comparison
    return SimplerModels(baseline, build_ladder(ladder, rows, compared))


def _baseline_metrics(
    scores: BaselineScores, chosen: str, split: str, monitor: str | None, comparison: list[MetricComparison]
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
