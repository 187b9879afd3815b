"""Inference with a trained task over a split."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from seqclf.batching.datamodule import Batch
from seqclf.errors import InputError
from seqclf.evaluation.tokens_curve import THRESHOLDS, CurveCounts, CurvePoint
from seqclf.system import progress
from seqclf.training.module import SequenceTask

MAX_LOGITS = 4_000_000  # maximum number of logits in memory for a curve, over all thresholds


@torch.inference_mode()
def predict_logits(task: SequenceTask, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (N,) and logits (N, C) of all batches, in the order of the split.

    Raises InputError for logits of another shape, and for logits that are not finite.
    """
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
            "train with debug=nan, which names the module and the rows",
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
    most_rows = max(1, MAX_LOGITS // (len(THRESHOLDS) * len(task.classes)))
    for batch in batches:
        for start in range(0, len(batch.ids), most_rows):
            rows = slice(start, start + most_rows)
            fields = {name: values[rows].to(task.device) for name, values in batch.fields.items()}
            lengths, host_lengths = batch.lengths[rows].to(task.device), batch.host_lengths[rows]
            logits, read = task.model.at_thresholds(fields, lengths, host_lengths, thresholds)
            counts.update(logits.float().cpu().numpy(), read.cpu().numpy(), batch.labels[rows].numpy(), host_lengths)
        progress.advance("rows", len(batch.ids))
    return counts.points()
