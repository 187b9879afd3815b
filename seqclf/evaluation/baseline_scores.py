"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_hexdigest

from seqclf.data.ragged import Ragged
from seqclf.data.storage.checksums import read_checked, write_checked
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, sample_split, sampled_rows
from seqclf.evaluation.baseline import MAX_FITTED_TOKENS, fit_baseline
from seqclf.evaluation.comparison import RowPredictions, deciding_metric
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace, write_bytes
from seqclf.system.json_result import JsonResult

SCORES_FORMAT = 4  # part of the names of the cache files; raise it when their content changes


@dataclass(frozen=True, kw_only=True)
class BaselineScores(JsonResult):
    """Metrics of the order-blind models, `models[model][split]`, for each split other than train.

    `model`: the one that a trained model has to beat, see `best_model`.
    """

    model: str
    models: dict[str, dict[str, ClassificationMetrics]]

    @property
    def judge(self) -> str:
        """Name of the split that chooses between the models: validation, or the first one if there is none."""
        splits = next(iter(self.models.values()))
        return "validation" if "validation" in splits else next(iter(splits))

    def values(self, metric: str, split: str) -> dict[str, float]:
        """Return a metric of each model on a split, 0 where it is not defined. `metric`: see `deciding_metric`."""
        is_of_label = metric == "average_precision"  # of the positive label, if there is one
        blocks = {name: by_split[split] for name, by_split in self.models.items()}
        return {
            name: float(getattr((block.positive if is_of_label else None) or block, metric) or 0.0)
            for name, block in blocks.items()
        }

    def best_model(self, metric: str) -> str:
        """Return the name of the model that has the best `metric` on the judging split, on a tie the lower loss."""
        values = self.values(metric, self.judge)
        return max(self.models, key=lambda name: (values[name], -self.models[name][self.judge].loss))


class BaselineRows(NamedTuple):
    """Predictions of the order-blind models on the last split.

    `positions`: (M,) of the rows in the split, all of them unless the split is sampled. `predictions`: by model.
    """

    positions: np.ndarray
    predictions: dict[str, RowPredictions]


class ScoredBaseline(NamedTuple):
    """Scores of the order-blind models, and the predictions that the trained model is compared with, row by row."""

    scores: BaselineScores
    last_rows: BaselineRows


def score_baseline(dataset: Dataset) -> ScoredBaseline:
    """Score the order-blind models. Cached in the dataset's folder, since scores change only with the dataset."""
    # Rows held out for a threshold leave the validation split, which changes the scores; their number tells both apart.
    validation_rows = len(dataset.splits["validation"].labels)
    cache_path = dataset.folder / f"baseline-{SCORES_FORMAT}-{validation_rows}-{dataset.positive}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return _read_cache(cache_path)
    scored = _score_baseline(dataset)
    with contextlib.suppress(OSError):  # the positive label may be no valid file name, or the cache be read-only
        _write_cache(cache_path, scored)
    # Read back, because the JSON form leaves out what the positive label has: the first run shows what later ones do.
    return scored._replace(scores=BaselineScores.from_dict(scored.scores.to_dict()))


def _read_cache(path: Path) -> ScoredBaseline:
    """Read the two files of `_write_cache`. Raises ValueError where one is damaged or of another run."""
    state = read_checked(path)
    content = path.with_suffix(".npz").read_bytes()
    if xxh3_64_hexdigest(content) != state["rows"]:
        raise ValueError(f"{path.with_suffix('.npz')} differs from its checksum")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        scores = BaselineScores.from_dict(state["scores"])
        predictions = {name: _predictions(arrays[f"{number}"]) for number, name in enumerate(scores.models)}
        return ScoredBaseline(scores, BaselineRows(arrays["positions"], predictions))


def _write_cache(path: Path, scored: ScoredBaseline) -> None:
    """Write the scores as JSON, and the predictions by row as arrays, which are not unpickled."""
    positions, predictions = scored.last_rows
    arrays = {"positions": positions}
    arrays |= {f"{number}": rows.scores for number, rows in enumerate(predictions.values()) if rows.scores is not None}
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    # The JSON file last, and with the hash of the other: an interrupted or a simultaneous write is noticed.
    write_bytes(path.with_suffix(".npz"), content.getvalue())
    with atomic_replace(path) as unfinished:
        write_checked(unfinished, {"scores": scored.scores.to_dict(), "rows": xxh3_64_hexdigest(content.getvalue())})


def _score_baseline(dataset: Dataset) -> ScoredBaseline:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits = {name: sample_split(split, MAX_FITTED_TOKENS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes))
    models = {
        model: {
            split: classification_metrics(splits[split].labels, probabilities, dataset.classes, dataset.positive)
            for split, probabilities in by_split.items()
        }
        for model, by_split in fitted.items()
    }
    last = list(dataset.splits)[-1]
    # Many classes take much memory, and their ranks bear rounding: none of them is nearly certain.
    precision = np.float64 if len(dataset.classes) == 2 else np.float32
    rows = BaselineRows(
        sampled_rows(dataset.splits[last].sequences, MAX_FITTED_TOKENS, 0),
        {name: _predictions(by_split[last].astype(precision)) for name, by_split in fitted.items()},
    )
    scores = BaselineScores(model="", models=models)
    best = scores.best_model(deciding_metric(monitor=""))
    return ScoredBaseline(replace(scores, model=best), rows)


def _predictions(probabilities: np.ndarray) -> RowPredictions:
    return RowPredictions(probabilities.argmax(axis=1), probabilities)


def score_single_fields(dataset: Dataset) -> dict[str, float]:
    """Return the macro recall that the better of the models reaches on the last split with each field alone.

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
        recalls[spec["name"]] = max(
            classification_metrics(one_field[last].labels, by_split[last], dataset.classes, dataset.positive).recall
            for by_split in fitted.values()
        )
    return recalls


def _with_one_field(split: Split, name: str) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name]})
    return Split(sequences, split.labels, split.ids, split.row_numbers)
