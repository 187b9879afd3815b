"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqclf.data.encoding.encoders import tokens_of
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, sample_split, sampled_rows
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.baseline import (
    BOOSTING,
    DEFAULT_COST,
    LOGISTIC,
    MAX_BOOSTED_CLASSES,
    MAX_FITTED_TOKENS,
    MODELS,
    fit_baseline,
)
from seqclf.evaluation.comparison import deciding_metric
from seqclf.evaluation.ladder import ORDER_BLIND as ORDER_BLIND_RUNG
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.evaluation.scores import ORDER_BLIND, Scores, read_scores, split_outputs, write_scores
from seqclf.system import progress
from seqclf.system.json_result import JsonResult

# Format version in the name of the folder of scores; increase the version when their content changes.
SCORES_FORMAT = 8


@dataclass(frozen=True, kw_only=True)
class BaselineScores(JsonResult):
    """Metrics of the order-blind models, dict model → split → metrics, on every split except train.

    `model`: the best order-blind model, which a trained model has to beat (see `best_model`).
    """

    model: str
    models: dict[str, dict[str, ClassificationMetrics]]

    @property
    def judge(self) -> str:
        """Split that selects the best order-blind model: validation if it exists, else the first split."""
        splits = next(iter(self.models.values()))
        return "validation" if "validation" in splits else next(iter(splits))

    def values(self, metric: str, split: str) -> dict[str, float]:
        """Return dict model → value of a metric (see `deciding_metric`) on a split, 0 for an undefined value."""
        # Use the average precision of the positive label, if there is a positive label.
        is_of_label = metric == "average_precision"
        blocks = {name: by_split[split] for name, by_split in self.models.items()}
        return {
            name: float(getattr((block.positive if is_of_label else None) or block, metric) or 0.0)
            for name, block in blocks.items()
        }

    def best_model(self, metric: str) -> str:
        """Return the model with the best `metric` on the split `judge`, of equal ones the one of the lowest loss."""
        values = self.values(metric, self.judge)
        return max(self.models, key=lambda name: (values[name], -self.models[name][self.judge].loss))


def baseline_metrics(contenders: Sequence[Scores]) -> BaselineScores:
    """Return the metrics of order-blind models."""
    models = {
        scores.model: {
            split: classification_metrics(outputs.labels, scores.probabilities(split), scores.classes, scores.positive)
            for split, outputs in scores.splits.items()
        }
        for scores in contenders
    }
    scored = BaselineScores(model="", models=models)
    return replace(scored, model=scored.best_model(deciding_metric(monitor=None)))


def score_baseline(dataset: Dataset, *, quick: bool = False) -> list[Scores]:
    """Return the scores of the order-blind models on every split except train, of which large ones are sampled.

    The scores are kept in the folder of the dataset. `quick`: see `fit_baseline`; quick scores are not kept, and kept
    ones take their place.
    """
    # Holding out rows makes the validation split smaller, which changes the scores. The name of the folder therefore
    # contains the number of validation rows.
    folder = dataset.folder / f"baseline-{SCORES_FORMAT}-{len(dataset.splits['validation'].labels)}"
    names = [name for name in MODELS if len(dataset.classes) <= MAX_BOOSTED_CLASSES or name != BOOSTING]
    with contextlib.suppress(InputError):
        kept = [read_scores(folder / f"{name.replace(' ', '_')}.parquet") for name in names]
        return [replace(scores, positive=dataset.positive) for scores in kept]
    if quick:
        console.print(f"order-blind baseline: {LOGISTIC} with C={DEFAULT_COST:g} alone; a training fits more")
        return _score_baseline(dataset, quick=True)
    if BOOSTING not in names:
        console.print(
            "order-blind baseline: gradient boosting left out, "
            f"{len(dataset.classes):,} classes are more than {MAX_BOOSTED_CLASSES}"
        )
    scored = _score_baseline(dataset)
    with contextlib.suppress(InputError):  # the folder may be read-only
        for scores in scored:
            write_scores(folder / f"{scores.model.replace(' ', '_')}.parquet", scores)
    return scored


def _score_baseline(dataset: Dataset, *, quick: bool = False) -> list[Scores]:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits, shared_scales = _sampled_splits(dataset, MAX_FITTED_TOKENS)
    positions = {name: sampled_rows(split.sequences, MAX_FITTED_TOKENS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes), shared_scales=shared_scales, quick=quick)
    return [
        Scores(
            role=ORDER_BLIND,
            name=ORDER_BLIND_RUNG,
            model=name,
            classes=dataset.classes,
            label_type=dataset.schema.label_type,
            positive=dataset.positive,
            splits={
                split: split_outputs(splits[split], None, values, positions[split])
                for split, values in by_split.items()
            },
        )
        for name, by_split in fitted.items()
    ]


def score_single_fields(dataset: Dataset, *, quick: bool = False) -> dict[str, float]:
    """Return dict field → macro recall on the last split of the better order-blind model of this field alone.

    A recall close to 1 suggests that the field leaks the target. Empty for a single field. `quick`: see `fit_baseline`.
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
        fitted = fit_baseline(one_field, [spec], len(dataset.classes), shared_scales=shared_scales, quick=quick)
        recalls[spec["name"]] = max(
            classification_metrics(one_field[last].labels, by_split[last], dataset.classes, dataset.positive).recall
            for by_split in fitted.values()
        )
    return recalls


def _sampled_splits(dataset: Dataset, max_tokens: int) -> tuple[dict[str, Split], dict[str, str]]:
    """Return dict name → sampled split, and dict number field → its channels on one scale for all sequences.

    `scale: sequence` splits level and spread from the values, which models without order can hardly combine again.
    """
    splits, shared_scales = {}, {}
    for split_name, split in dataset.splits.items():
        sample = sample_split(split, max_tokens, 0)
        arrays = dict(sample.sequences.fields)
        for name, encoder in tokens_of(dataset.encoders).items():
            shared = encoder.shared_scale(sample.sequences.fields)
            if shared is not None:
                shared_scales[name] = f"{name} on one scale"
                arrays[shared_scales[name]] = shared
        splits[split_name] = sample._replace(
            sequences=Ragged(sample.sequences.offsets, arrays, sample.sequences.static)
        )
    return splits, shared_scales


def _with_arrays(split: Split, names: Sequence[str]) -> Split:
    offsets, tokens, static = split.sequences
    kept = [{name: values[name] for name in names if name in values} for values in (tokens, static)]
    return split._replace(sequences=Ragged(offsets, *kept))
