"""Scoring: a trained task, and what it is compared with, become logits of rows, in a file of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from seqclf.batching.batches import Batch
from seqclf.batching.datamodule import SequenceDataModule
from seqclf.bundle.session import require_shape
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError
from seqclf.evaluation.baseline_scores import score_baseline
from seqclf.evaluation.scores import HEAD, NETWORK, ScoredRows, Scores
from seqclf.report.model_card import network_kind
from seqclf.system import progress
from seqclf.training.task import SequenceTask


def score_models(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset, *, baseline: bool) -> list[Scores]:
    """Return the scores of a task and the models beside it, from the weakest. `baseline`: also order-blind ones."""
    order_blind = score_baseline(dataset) if baseline else []
    return [*order_blind, *_score_task(task, batches, dataset)]


def _score_task(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset) -> list[Scores]:
    """Return the scores of each part of a network alone, on the last split, and those of the network."""
    splits, parts, outputs = {}, list[Scores](), dict[str, np.ndarray]()
    for split, rows in batches.splits.items():
        is_last = split == list(dataset.splits)[-1]
        if len(rows.sequences):
            with progress.stage(f"evaluating on {split}", total=len(rows.labels), unit="rows"):
                outputs = predict_outputs(task, batches.evaluation_loader(split), parts=is_last)
        else:  # there are no held-out rows if every class has too few validation rows
            outputs = {name: values[:0] for name, values in outputs.items()}
        extra = {name: outputs[name] for name in task.model.extra_outputs}
        splits[split] = ScoredRows.of_split(rows, outputs["logits"], extra=extra)
        if is_last:
            parts = [
                _scores(HEAD, name, "head alone", dataset, {split: ScoredRows.of_split(rows, values)})
                for name, values in outputs.items()
                if name not in ("logits", *extra)
            ]
    return [*parts, _scores(NETWORK, NETWORK, network_kind(task.hparams["model"]), dataset, splits)]


def _scores(role: str, name: str, model: str, dataset: Dataset, outputs: Mapping[str, ScoredRows]) -> Scores:
    return Scores(
        role=role,
        name=name,
        model=model,
        classes=dataset.classes,
        label_type=dataset.schema.label_type,
        positive=dataset.positive,
        splits=outputs,
    )


@torch.inference_mode()
def predict_outputs(task: SequenceTask, batches: Iterable[Batch], *, parts: bool = False) -> dict[str, np.ndarray]:
    """Return dict output → (N, …) in the order of the split (see `SequenceNetwork.outputs`).

    `parts`: True for the logits of parts of the network too. Raises InputError for logits of another shape, and for
    logits that are not finite.
    """
    task = task.eval()
    ids, found = list[np.ndarray](), dict[str, list[np.ndarray]]()
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        outputs = task.model.outputs(fields, batch.lengths.to(task.device), batch.host_lengths)
        require_shape("the network", outputs["logits"], len(batch.ids), len(task.classes))
        ids.append(batch.ids)
        names = outputs if parts else ("logits", *task.model.extra_outputs)
        for name in names:
            values = outputs[name]
            numbers = values.float() if values.is_floating_point() else values
            found.setdefault(name, []).append(numbers.cpu().numpy())
        progress.advance("rows", len(batch.ids))
    order = np.argsort(np.concatenate(ids), kind="stable")  # evaluation batches are sorted by length
    ordered = {name: np.concatenate(values)[order] for name, values in found.items()}
    if broken := int((~np.isfinite(ordered["logits"])).any(axis=1).sum()):
        raise InputError(
            "the network",
            f"gives logits that are not finite for {broken} of {len(order)} rows",
            "lower optimizer.lr, and train again; trainer.detect_anomaly=true names the operation",
        )
    return ordered
