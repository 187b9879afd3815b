"""Inference with a trained task over a split."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from seqclf.batching.datamodule import Batch
from seqclf.evaluation.tokens_curve import THRESHOLDS, CurveCounts, CurvePoint
from seqclf.system import progress
from seqclf.training.module import SequenceTask


@torch.inference_mode()
def predict_logits(task: SequenceTask, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (N,) and logits (N, C) of all batches, in the order of the split."""
    task = task.eval()
    ids, labels, logits = [], [], []
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        batch_logits = task(batch._replace(fields=fields, lengths=batch.lengths.to(task.device)))
        ids.append(batch.ids)
        labels.append(batch.labels.numpy())
        logits.append(batch_logits.float().cpu().numpy())
        progress.advance("rows", len(batch.ids))
    # Evaluation batches are sorted by length.
    order = np.argsort(np.concatenate(ids), kind="stable")
    return np.concatenate(labels)[order], np.concatenate(logits)[order]


@torch.inference_mode()
def tokens_curve(task: SequenceTask, batches: Iterable[Batch]) -> list[CurvePoint]:
    """Return the accuracy of an adaptive network at each of `THRESHOLDS`, in one pass over the batches."""
    task = task.eval()
    counts, thresholds = CurveCounts(len(task.classes)), torch.from_numpy(THRESHOLDS)
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        lengths = batch.lengths.to(task.device)
        logits, read = task.model.at_thresholds(fields, lengths, batch.host_lengths, thresholds)
        counts.update(logits.float().cpu().numpy(), read.cpu().numpy(), batch.labels.numpy(), batch.host_lengths)
        progress.advance("rows", len(batch.ids))
    return counts.points()
