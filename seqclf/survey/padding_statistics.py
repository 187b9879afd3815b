"""Padding: the efficiency of the first epoch's batches, next to padding every row to the longest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.batching.plan import padding_efficiency, plan_arguments, plan_batches
from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonResult

MAX_PLANNED_ROWS = 2_000_000  # the efficiency of more rows is that of the first ones


@dataclass(frozen=True)
class PaddingSurvey(JsonResult):
    """Batches of the first epoch. `padding_efficiency`: tokens over computed tokens, padding included.
    `padding_efficiency_static`: the same if every row were padded to the longest."""

    batches: int
    rows_per_batch: float
    padding_efficiency: float
    padding_efficiency_static: float


def survey_padding(dataset: Dataset, batching: Mapping[str, Any]) -> PaddingSurvey:
    """Plan the first epoch of training with the `batching` of a config and measure its padding."""
    train = dataset.splits["train"]
    lengths = train.sequences.lengths[:MAX_PLANNED_ROWS]
    plan = plan_arguments(batching, lengths, train.labels[:MAX_PLANNED_ROWS])
    batches = plan_batches(lengths, **plan, seed=0, epoch=0)
    return PaddingSurvey(
        batches=len(batches),
        rows_per_batch=float(np.mean([len(rows) for rows in batches])),
        padding_efficiency=padding_efficiency(lengths, batches, plan["edges"]),
        padding_efficiency_static=float(lengths.mean() / lengths.max()),
    )
