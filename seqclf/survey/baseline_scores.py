"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from seqclf.data.caching.checksums import read_checked, write_checked
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Ragged, Split, sample_split
from seqclf.evaluation.metrics import classification_metrics
from seqclf.survey.baseline import MAX_FITTED_TOKENS, fit_baseline

SCORES_FORMAT = 2  # part of the cache file's name; raise it when the content of the scores changes


def score_baseline(dataset: Dataset) -> dict[str, Any]:
    """Return metrics of the baseline models as `models[model][split]`, and the name of the better one as `model`.

    Covers each split other than train. Cached in the dataset's folder, since they change only with the dataset.
    """
    # Rows held out for a threshold leave the validation split, which changes the scores; their number tells both apart.
    validation_rows = len(dataset.splits["validation"].labels)
    cache_path = dataset.folder / f"baseline-{SCORES_FORMAT}-{validation_rows}-{dataset.positive}.json"
    try:
        return read_checked(cache_path)
    except (OSError, ValueError):
        scores = _score_baseline(dataset)
    with contextlib.suppress(OSError):  # the positive label may be no valid file name, or the cache be read-only
        unfinished_path = cache_path.with_suffix(f".{os.getpid()}.part")
        write_checked(unfinished_path, scores)
        unfinished_path.replace(cache_path)
    return scores


def _score_baseline(dataset: Dataset) -> dict[str, Any]:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits = {name: sample_split(split, MAX_FITTED_TOKENS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes))
    models = {
        model: {
            split: classification_metrics(
                splits[split].labels, probabilities, dataset.classes, dataset.positive
            ).to_dict()
            for split, probabilities in by_split.items()
        }
        for model, by_split in fitted.probabilities.items()
    }
    return {"model": fitted.name, "models": models}


def score_single_fields(dataset: Dataset) -> dict[str, float]:
    """Return the macro recall that the baseline reaches on the last split with each field alone.

    A field that reaches nearly 1 may leak the target. Empty for datasets of one field.
    """
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    if len(specs) < 2:
        return {}
    splits = {name: sample_split(split, MAX_FITTED_TOKENS // 8, 0) for name, split in dataset.splits.items()}
    found = {}
    last = list(splits)[-1]
    for spec in specs:
        own = {name: _with_one_field(split, spec["name"]) for name, split in splits.items()}
        fitted = fit_baseline(own, [spec], len(dataset.classes))
        result = classification_metrics(
            own[last].labels, fitted.probabilities[fitted.name][last], dataset.classes, dataset.positive
        )
        found[spec["name"]] = result.recall
    return found


def _with_one_field(split: Split, name: str) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name]})
    return Split(sequences, split.labels, split.ids, split.row_numbers)
