"""Baseline scores: metrics of the order-blind models, on all fields together and on each field alone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from seqclf.evaluation.metrics import Metrics, classification_metrics
from seqclf.evaluation.score_files import read_scores, write_scores
from seqclf.evaluation.scores import ORDER_BLIND, ScoredRows, Scores
from seqclf.system import progress

# Format version in the name of the folder of scores; increase the version when their content changes.
SCORES_FORMAT = 9


def metrics_of(scores: Scores, positive: str | None) -> dict[str, Metrics]:
    """Return the metrics of the most probable classes on each split."""
    return {
        split: classification_metrics(rows.labels, rows.probabilities(), scores.classes, positive)
        for split, rows in scores.splits.items()
    }


def best_model(scored: Mapping[str, Mapping[str, Metrics]], metric: str) -> str:
    """Return the model of the best metric on validation, or else on its first split; of equal ones that of lower loss.

    `scored`: dict model → split → metrics. `metric`: see `deciding_metric`.
    """
    splits = next(iter(scored.values()))
    split = "validation" if "validation" in splits else next(iter(splits))
    return max(scored, key=lambda name: (scored[name][split].value(metric), -scored[name][split].loss))


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
            name="order-blind",
            model=name,
            classes=dataset.classes,
            label_type=dataset.schema.label_type,
            positive=dataset.positive,
            splits={
                split: ScoredRows.of_split(splits[split], None, values, positions=positions[split])
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
