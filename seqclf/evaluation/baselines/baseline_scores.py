"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, sample_split, sampled_rows
from seqclf.documents.terminal import console
from seqclf.evaluation.baselines.baseline import MAX_BOOSTED_CLASSES, MAX_FITTED_TOKENS, fit_baseline
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.evaluation.uncertainty.comparison import RowPredictions, deciding_metric
from seqclf.system import progress
from seqclf.system.atomic_files import write_bytes
from seqclf.system.json_result import JsonResult

# Format version in the name of the cache file; increase the version when the content of the file changes.
SCORES_FORMAT = 6


@dataclass(frozen=True, kw_only=True)
class BaselineScores(JsonResult):
    """Metrics of the order-blind models on every split except train.

    `models`: dict model → split → metrics. `model`: name of the best order-blind model; a trained model has to beat
    this model (see `best_model`).
    """

    model: str
    models: dict[str, dict[str, ClassificationMetrics]]

    @property
    def judge(self) -> str:
        """Name of the split that selects the best order-blind model: validation if it exists, else the first split."""
        splits = next(iter(self.models.values()))
        return "validation" if "validation" in splits else next(iter(splits))

    def values(self, metric: str, split: str) -> dict[str, float]:
        """Return dict model → value of a metric on a split, with 0 for an undefined value.

        `metric`: name of the metric (see `deciding_metric`).
        """
        # Use the average precision of the positive label, if there is a positive label.
        is_of_label = metric == "average_precision"
        blocks = {name: by_split[split] for name, by_split in self.models.items()}
        return {
            name: float(getattr((block.positive if is_of_label else None) or block, metric) or 0.0)
            for name, block in blocks.items()
        }

    def best_model(self, metric: str) -> str:
        """Return the name of the model with the best `metric` on the split `judge`.

        If several models are equally good, the model with the lowest loss is returned.
        """
        values = self.values(metric, self.judge)
        return max(self.models, key=lambda name: (values[name], -self.models[name][self.judge].loss))


class BaselineRows(NamedTuple):
    """Predictions of the order-blind models on the last split.

    `positions`: (M,) positions of the predicted rows in the split; these are all rows unless the split was sampled.
    `predictions`: dict model → predictions of the M rows.
    """

    positions: np.ndarray
    predictions: dict[str, RowPredictions]


class ScoredBaseline(NamedTuple):
    """Scores of the order-blind models, and their predictions for a row-by-row comparison with the trained model."""

    scores: BaselineScores
    last_rows: BaselineRows


def score_baseline(dataset: Dataset) -> ScoredBaseline:
    """Score the order-blind models on a dataset.

    The scores are cached in the folder of the dataset, because they depend only on the dataset.
    """
    # Holding out rows makes the validation split smaller, which changes the scores. The file name therefore contains
    # the number of validation rows.
    validation_rows = len(dataset.splits["validation"].labels)
    cache_path = dataset.folder / f"baseline-{SCORES_FORMAT}-{validation_rows}-{dataset.positive}.npz"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile):
        return _read_cache(cache_path)
    scored = _score_baseline(dataset)
    # The positive label may be invalid in a file name, or the folder may be read-only.
    with contextlib.suppress(OSError):
        _write_cache(cache_path, scored)
    # For two classes, the JSON form omits metrics that the entry `positive` repeats. Convert the scores to JSON and
    # back, so that the first run returns the same metrics as later runs that read the cache.
    return scored._replace(scores=BaselineScores.from_dict(scored.scores.to_dict()))


def _read_cache(path: Path) -> ScoredBaseline:
    """Read the file that `_write_cache` wrote."""
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
        scores = BaselineScores.from_dict(json.loads(arrays["scores"].item()))
        predictions = {name: _predictions(arrays[f"{number}"]) for number, name in enumerate(scores.models)}
        return ScoredBaseline(scores, BaselineRows(arrays["positions"], predictions))


def _write_cache(path: Path, scored: ScoredBaseline) -> None:
    """Write the scores and the predictions to a file that loads without pickle."""
    positions, predictions = scored.last_rows
    arrays = {"scores": np.array(json.dumps(scored.scores.to_dict())), "positions": positions}
    arrays |= {f"{number}": rows.scores for number, rows in enumerate(predictions.values()) if rows.scores is not None}
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def _score_baseline(dataset: Dataset) -> ScoredBaseline:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits, shared_scales = _sampled_splits(dataset, MAX_FITTED_TOKENS)
    if len(dataset.classes) > MAX_BOOSTED_CLASSES:
        console.print(
            "order-blind baseline: gradient boosting left out, "
            f"{len(dataset.classes):,} classes are more than {MAX_BOOSTED_CLASSES}"
        )
    fitted = fit_baseline(splits, specs, len(dataset.classes), shared_scales=shared_scales)
    models = {
        model: {
            split: classification_metrics(splits[split].labels, probabilities, dataset.classes, dataset.positive)
            for split, probabilities in by_split.items()
        }
        for model, by_split in fitted.items()
    }
    last = list(dataset.splits)[-1]
    # The probabilities of many classes take much memory, so they are stored as float32. These probabilities are not
    # close to 1, so rounding to float32 hardly changes the ranking of the rows.
    precision = np.float64 if len(dataset.classes) == 2 else np.float32
    rows = BaselineRows(
        sampled_rows(dataset.splits[last].sequences, MAX_FITTED_TOKENS, 0),
        {name: _predictions(by_split[last].astype(precision)) for name, by_split in fitted.items()},
    )
    scores = BaselineScores(model="", models=models)
    best = scores.best_model(deciding_metric(monitor=None))
    return ScoredBaseline(replace(scores, model=best), rows)


def _predictions(probabilities: np.ndarray) -> RowPredictions:
    return RowPredictions(probabilities.argmax(axis=1), probabilities)


def score_single_fields(dataset: Dataset) -> dict[str, float]:
    """Return dict field → macro recall of the better order-blind model when it is fitted on this field alone.

    The recall is measured on the last split. A recall close to 1 suggests that the field leaks the target. The dict is
    empty if the dataset has only one field.
    """
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    if len(specs) < 2:
        return {}
    # A separate baseline is fitted for each field. With an eighth of the tokens for each field, eight fields take as
    # long as the baseline on all fields.
    splits, shared_scales = _sampled_splits(dataset, MAX_FITTED_TOKENS // 8)
    recalls = {}
    last = list(splits)[-1]
    for spec in progress.track(specs, "order-blind baseline of each field alone", total=len(specs), unit="fields"):
        arrays = [spec["name"], *(shared for name, shared in shared_scales.items() if name == spec["name"])]
        one_field = {name: _with_arrays(split, arrays) for name, split in splits.items()}
        fitted = fit_baseline(one_field, [spec], len(dataset.classes), shared_scales=shared_scales)
        recalls[spec["name"]] = max(
            classification_metrics(one_field[last].labels, by_split[last], dataset.classes, dataset.positive).recall
            for by_split in fitted.values()
        )
    return recalls


def _sampled_splits(dataset: Dataset, max_tokens: int) -> tuple[dict[str, Split], dict[str, str]]:
    """Return dict name → sampled split, and dict number field → array with its channels on one scale for all sequences.

    `scale: sequence` removes the level and the spread of a sequence from its values. Models without order can hardly
    combine them again, so a baseline on encoded values would be weaker than a baseline on the values of the data.
    """
    splits, shared_scales = {}, {}
    for split_name, split in dataset.splits.items():
        sample = sample_split(split, max_tokens, 0)
        arrays = dict(sample.sequences.fields)
        for name, encoder in dataset.encoders.items():
            shared = encoder.shared_scale(sample.sequences.fields)
            if shared is not None:
                shared_scales[name] = f"{name} on one scale"
                arrays[shared_scales[name]] = shared
        splits[split_name] = sample._replace(sequences=Ragged(sample.sequences.offsets, arrays))
    return splits, shared_scales


def _with_arrays(split: Split, names: Sequence[str]) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name] for name in names})
    return split._replace(sequences=sequences)
