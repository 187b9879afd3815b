"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from seqclf.data.caching.checksums import read_checked, write_checked
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Ragged, Split, sample_split
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.survey.baseline import MAX_FITTED_TOKENS, fit_baseline
from seqclf.system import progress
from seqclf.system.json_result import JsonResult

SCORES_FORMAT = 2  # part of the cache file's name; raise it when the content of the scores changes


@dataclass(frozen=True, kw_only=True)
class BaselineScores(JsonResult):
    """Metrics of the order-blind models, `models[model][split]`, for each split other than train.

    `model`: the better one, by its validation loss.
    """

    model: str
    models: dict[str, dict[str, ClassificationMetrics]]

    @property
    def best(self) -> dict[str, ClassificationMetrics]:
        """Metrics of the better model by split."""
        return self.models[self.model]


def score_baseline(dataset: Dataset) -> BaselineScores:
    """Score the order-blind models. Cached in the dataset's folder, since scores change only with the dataset."""
    # Rows held out for a threshold leave the validation split, which changes the scores; their number tells both apart.
    validation_rows = len(dataset.splits["validation"].labels)
    cache_path = dataset.folder / f"baseline-{SCORES_FORMAT}-{validation_rows}-{dataset.positive}.json"
    try:
        return BaselineScores.from_dict(read_checked(cache_path))
    except (OSError, ValueError, TypeError):
        plain_scores = _score_baseline(dataset).to_dict()
    with contextlib.suppress(OSError):  # the positive label may be no valid file name, or the cache be read-only
        unfinished_path = cache_path.with_suffix(f".{os.getpid()}.part")
        write_checked(unfinished_path, plain_scores)
        unfinished_path.replace(cache_path)
    # Read back, because the JSON form leaves out what the positive label has: the first run shows what later ones do.
    return BaselineScores.from_dict(plain_scores)


def _score_baseline(dataset: Dataset) -> BaselineScores:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits = {name: sample_split(split, MAX_FITTED_TOKENS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes))
    models = {
        model: {
            split: classification_metrics(splits[split].labels, probabilities, dataset.classes, dataset.positive)
            for split, probabilities in by_split.items()
        }
        for model, by_split in fitted.probabilities.items()
    }
    return BaselineScores(model=fitted.name, models=models)


def score_single_fields(dataset: Dataset) -> dict[str, float]:
    """Return the macro recall that the baseline reaches on the last split with each field alone.

    A field that reaches nearly 1 may leak the target. Empty for datasets of one field.
    """
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    if len(specs) < 2:
        return {}
    # One fit per field: on an eighth of the tokens, so that eight fields take as long as the baseline itself.
    splits = {name: sample_split(split, MAX_FITTED_TOKENS // 8, 0) for name, split in dataset.splits.items()}
    recalls = {}
    last = list(splits)[-1]
    for spec in progress.track(specs, "order-blind baseline of each field alone", total=len(specs), unit="fields"):
        one_field = {name: _with_one_field(split, spec["name"]) for name, split in splits.items()}
        fitted = fit_baseline(one_field, [spec], len(dataset.classes))
        metrics = classification_metrics(
            one_field[last].labels, fitted.probabilities[fitted.name][last], dataset.classes, dataset.positive
        )
        recalls[spec["name"]] = metrics.recall
    return recalls


def _with_one_field(split: Split, name: str) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name]})
    return Split(sequences, split.labels, split.ids, split.row_numbers)
