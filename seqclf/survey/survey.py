"""A dataset looked over before it is trusted: classes, lengths, batches, fields, leaks, and what an order-blind model
makes of it. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.data.options import DataOptions
from seqclf.data.storage.dataset import Dataset
from seqclf.survey.counts import count_classes, measure_lengths, try_batches, try_limits
from seqclf.survey.field_statistics import look_at_field
from seqclf.survey.predictability import find_revealing, score_baseline, score_fields_alone
from seqclf.survey.warnings import warnings_of


def survey_dataset(
    dataset: Dataset, options: DataOptions, batching: Mapping[str, Any], *, baseline: bool
) -> dict[str, Any]:
    """Everything that `describe` tells, as plain values; `baseline=False` leaves out what has to fit a model.

    `warnings` holds a line for each thing that should be looked at before training.
    """
    found: dict[str, Any] = {
        "name": options.name,
        "classes": count_classes(dataset),
        "positive": dataset.positive,
        "rows": {name: dict(counts) for name, counts in dataset.report.items()},
        "lengths": measure_lengths(dataset),
        "truncation": try_limits(dataset),
        "batches": try_batches(dataset, batching),
        "fields": {name: look_at_field(dataset, name, encoder) for name, encoder in dataset.encoders.items()},
        "ignored": list(dataset.schema.ignored),
        "leaks": dataset.leaks,
        "columns": [],
        "baseline": None,
    }
    if baseline:
        found["columns"] = find_revealing(dataset, options)
        found["baseline"] = score_baseline(dataset)
        found["alone"] = score_fields_alone(dataset)
    found["warnings"] = warnings_of(found)
    return found
