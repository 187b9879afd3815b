"""Scoring: a trained task, and what it is compared with, become logits of rows, in a file of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from seqclf.batching.datamodule import Batch, SequenceDataModule
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError
from seqclf.evaluation import ladder
from seqclf.evaluation.baselines.baseline_scores import score_baseline
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.scores import HEAD, NETWORK, Scores, split_outputs
from seqclf.evaluation.tokens_curve import THRESHOLDS, CurveCounts, CurvePoint
from seqclf.report.model_card import network_kind
from seqclf.system import progress
from seqclf.training.task import SequenceTask

MAX_TOKENS_OF_PARTS = 2_000_000  # tokens of the last split up to which parts of the network are scored alone
MAX_CURVE_LOGITS = 4_000_000  # maximum number of logits in memory for a curve, over all thresholds


def _score_task(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset) -> Scores:
    outputs = {}
    for split, rows in batches.splits.items():
        logits = np.empty((0, len(dataset.classes)), np.float32)
        if len(rows.sequences):  # there are no held-out rows if every class has too few validation rows
            with progress.stage(f"evaluating on {split}", total=len(rows.labels), unit="rows"):
                logits = predict_logits(task, batches.evaluation_loader(split))[1]
        outputs[split] = split_outputs(rows, logits)
    return _scores(NETWORK, ladder.NETWORK, network_kind(task.hparams["model"]), dataset, outputs)


def score_contenders(
    task: SequenceTask, batches: SequenceDataModule, dataset: Dataset, *, baseline: bool
) -> list[Scores]:
    """Return the scores of a task and the models beside it, from the weakest. `baseline`: also order-blind ones."""
    order_blind = score_baseline(dataset) if baseline else []
    network = _score_task(task, batches, dataset)
    return [*order_blind, *_score_parts(task, batches, dataset), network]


def _score_parts(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset) -> list[Scores]:
    """Return the scores of each part of a network alone, none for a last split that takes long to read."""
    last = list(dataset.splits)[-1]
    rows = batches.splits[last]
    if rows.sequences.offsets[-1] > MAX_TOKENS_OF_PARTS:
        return []
    parts = predict_parts(task, batches.evaluation_loader(last))
    return [
        _scores(HEAD, name, "head alone", dataset, {last: split_outputs(rows, logits)})
        for name, logits in parts.items()
    ]


def _scores(role: str, name: str, model: str, dataset: Dataset, outputs: Mapping[str, SplitOutputs]) -> Scores:
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
def predict_logits(task: SequenceTask, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (N,) and logits (N, C) in the order of the split, or raise InputError for a NaN."""
    task = task.eval()
    ids, labels, logits = [], [], []
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        batch_logits = task.logits_of(batch._replace(fields=fields, lengths=batch.lengths.to(task.device)))
        ids.append(batch.ids)
        labels.append(batch.labels.numpy())
        logits.append(batch_logits.cpu().numpy())
        progress.advance("rows", len(batch.ids))
    # Evaluation batches are sorted by length.
    order = np.argsort(np.concatenate(ids), kind="stable")
    ordered = np.concatenate(logits)[order]
    if broken := int((~np.isfinite(ordered)).any(axis=1).sum()):
        raise InputError(
            "the network",
            f"gives logits that are not finite for {broken} of {len(ordered)} rows",
            "lower optimizer.lr, and train again; trainer.detect_anomaly=true names the operation",
        )
    return np.concatenate(labels)[order], ordered


@torch.inference_mode()
def predict_parts(task: SequenceTask, batches: Iterable[Batch]) -> dict[str, np.ndarray]:
    """Return dict part of the network → logits (N, C) of all batches (see `SequenceNetwork.parts`)."""
    task = task.eval()
    ids: list[np.ndarray] = []
    found: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        parts = task.model.parts(fields, batch.lengths.to(task.device), batch.host_lengths)
        if not parts:
            return {}
        ids.append(batch.ids)
        for name, logits in parts.items():
            found.setdefault(name, []).append(logits.float().cpu().numpy())
    order = np.argsort(np.concatenate(ids), kind="stable")
    return {name: np.concatenate(logits)[order] for name, logits in found.items()}


@torch.inference_mode()
def tokens_curve(task: SequenceTask, batches: Iterable[Batch]) -> list[CurvePoint]:
    """Return the curve points of a network that may halt, one point for each of `THRESHOLDS`, in one pass."""
    task = task.eval()
    counts, thresholds = CurveCounts(len(task.classes)), torch.from_numpy(THRESHOLDS)
    most_rows = max(1, MAX_CURVE_LOGITS // (len(THRESHOLDS) * len(task.classes)))
    for batch in batches:
        for start in range(0, len(batch.ids), most_rows):
            rows = slice(start, start + most_rows)
            fields = {name: values[rows].to(task.device) for name, values in batch.fields.items()}
            lengths, host_lengths = batch.lengths[rows].to(task.device), batch.host_lengths[rows]
            logits, read = task.model.at_thresholds(fields, lengths, host_lengths, thresholds)
            counts.update(logits.float().cpu().numpy(), read.cpu().numpy(), batch.labels[rows].numpy(), host_lengths)
        progress.advance("rows", len(batch.ids))
    return counts.points()
