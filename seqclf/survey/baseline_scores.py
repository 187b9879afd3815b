"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_hexdigest

from seqclf.data.ragged import Ragged
from seqclf.data.storage.checksums import read_checked, write_checked
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, sample_split, sampled_rows
from seqclf.evaluation.comparison import RowPredictions
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.survey.baseline import MAX_FITTED_TOKENS, fit_baseline
from seqclf.system import progress
from seqclf.system.json_result import JsonResult

SCORES_FORMAT = 3  # part of the names of the cache files; raise it when their content changes


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


class BaselineRows(NamedTuple):
    """Predictions of the better order-blind model on the last split.

    `positions`: (M,) of the rows in the split, all of them unless the split is sampled.
    """

    positions: np.ndarray
    predictions: RowPredictions


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
        predictions = RowPredictions(arrays["predicted"], arrays.get("score"))
        rows = BaselineRows(arrays["positions"], predictions)
    return ScoredBaseline(BaselineScores.from_dict(state["scores"]), rows)


def _write_cache(path: Path, scored: ScoredBaseline) -> None:
    """Write the scores as JSON, and the predictions by row as arrays, which are not unpickled."""
    positions, (predicted, score) = scored.last_rows
    arrays = {"positions": positions, "predicted": predicted, **({} if score is None else {"score": score})}
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    # The JSON file last, and with the hash of the other: an interrupted or a simultaneous write is noticed.
    unfinished_path = path.with_suffix(f".{os.getpid()}.part")
    unfinished_path.write_bytes(content.getvalue())
    unfinished_path.replace(path.with_suffix(".npz"))
    write_checked(unfinished_path, {"scores": scored.scores.to_dict(), "rows": xxh3_64_hexdigest(content.getvalue())})
    unfinished_path.replace(path)


def _score_baseline(dataset: Dataset) -> ScoredBaseline:
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
    last = list(dataset.splits)[-1]
    probabilities = fitted.probabilities[fitted.name][last]
    score = None if dataset.positive is None else probabilities[:, dataset.classes.index(dataset.positive)]
    rows = BaselineRows(
        sampled_rows(dataset.splits[last].sequences, MAX_FITTED_TOKENS, 0),
        RowPredictions(probabilities.argmax(axis=1).astype(np.int32), score),
    )
    return ScoredBaseline(BaselineScores(model=fitted.name, models=models), rows)


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
