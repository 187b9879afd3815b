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
    mix: Mix | None,
    *,
    with_baseline: bool,
) -> SimplerModels:
    """Compare the trained model with simpler ones on the same rows of the last split.

    `metrics`: metrics of the trained model on the last split. `others`: dict name of a rung → another model, with
    predictions of all rows of the last split. `mix`: the wide paths of the trained model. `with_baseline`: fit the
    order-blind baseline. The rungs share the rows that the baseline predicts, which are a sample of a large split.
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
    name, title = _trained_rung(config, mix)
    whole = Contender(title, RowPredictions(evaluation.predicted, evaluation.probabilities), metrics)
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
    """Return the network and the wide paths of a run as models of their own, but for the one that is the trained model.

    The trained model is the network alone with a share of 0, and the wide paths alone with a share of 1.
    """
    if mix is None:
        return {}
    trained, _ = _trained_rung(config, mix)
    titles = {WIDE: _wide_title(mix), NETWORK: network_kind(config.model)}
    return {
        name: Contender(title, most_probable(softmax(mix.logits[name])))
        for name, title in titles.items()
        if name != trained
    }


def _trained_rung(config: TrainConfig, mix: Mix | None) -> tuple[str, str]:
    """Return the rung of the trained model, and its title."""
    network = network_kind(config.model)
    if mix is None or mix.choice.share == 0:
        return NETWORK, network
    return (WIDE, _wide_title(mix)) if mix.choice.share == 1 else (MIX, f"{_wide_title(mix)} and {network}")


def _wide_title(mix: Mix) -> str:
    return " and ".join(mix.choice.paths)


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
