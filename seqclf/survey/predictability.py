"""What can be told of the label without the order of the steps: by simple models, by a field or a column alone."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from seqclf.data.caching.checksums import read_checked, write_checked
from seqclf.data.options import DataOptions
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Ragged, Split, sample_split
from seqclf.evaluation.metrics import classification_metrics
from seqclf.survey.baseline import MOST_STEPS, fit_baseline
from seqclf.survey.target_leakage import revealing_columns

SCORES_FORMAT = 2


def score_baseline(dataset: Dataset) -> dict[str, Any]:
    """Scores of the order-blind models on each split other than train; `model` names the one to compare with.

    Kept in the dataset's folder, as they change only with it.
    """
    # Validation may lack the rows that are kept apart for a threshold; their number tells which.
    rows = len(dataset.splits["validation"].labels)
    kept = dataset.folder / f"baseline-{SCORES_FORMAT}-{rows}-{dataset.positive}.json"
    try:
        return read_checked(kept)
    except (OSError, ValueError):
        found = _score_baseline(dataset)
    with contextlib.suppress(OSError):  # a label may be no file name, and a cache may be read-only
        unfinished = kept.with_suffix(f".{os.getpid()}.part")
        write_checked(unfinished, found)
        unfinished.replace(kept)
    return found


def _score_baseline(dataset: Dataset) -> dict[str, Any]:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits = {name: sample_split(split, MOST_STEPS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes))
    models = {
        model: {
            name: classification_metrics(splits[name].labels, own, dataset.classes, dataset.positive).to_dict()
            for name, own in by_split.items()
        }
        for model, by_split in fitted.probabilities.items()
    }
    return {"model": fitted.name, "models": models}


def find_revealing(dataset: Dataset, options: DataOptions) -> list[dict[str, Any]]:
    """Columns that no field reads, of the file with the labels."""
    table = options.source("labels")
    source = table or options.source("train")
    if source is None or (dataset.schema.group_by and table is None):
        return []
    used = {column for _, column in dataset.schema.columns}
    return revealing_columns(
        source, options.label, {*used, *dataset.schema.group_by, *([options.id] if options.id else [])}
    )


def score_fields_alone(dataset: Dataset) -> dict[str, float]:
    """Macro recall of the order-blind model that sees one field, where there are several."""
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    if len(specs) < 2:
        return {}
    splits = {name: sample_split(split, MOST_STEPS // 8, 0) for name, split in dataset.splits.items()}
    found = {}
    last = list(splits)[-1]
    for spec in specs:
        own = {name: _only(split, spec["name"]) for name, split in splits.items()}
        fitted = fit_baseline(own, [spec], len(dataset.classes))
        result = classification_metrics(
            own[last].labels, fitted.probabilities[fitted.name][last], dataset.classes, dataset.positive
        )
        found[spec["name"]] = result.recall
    return found


def _only(split: Split, name: str) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name]})
    return Split(sequences, split.labels, split.ids, split.rows)
