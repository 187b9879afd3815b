"""A trained task over a split → labels and logits, in the split's order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from seqclf.batching.datamodule import Batch
from seqclf.training.module import SequenceTask


@torch.inference_mode()
def predict_logits(task: SequenceTask, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) and logits (N, C) of all batches, ordered by the batches' `ids`."""
    task = task.eval()
    ids, labels, logits = [], [], []
    for batch in batches:
        fields = {name: steps.to(task.device) for name, steps in batch.fields.items()}
        found = task(batch._replace(fields=fields, lengths=batch.lengths.to(task.device)))
        ids.append(batch.ids)
        labels.append(batch.labels.numpy())
        logits.append(found.float().cpu().numpy())
    order = np.argsort(np.concatenate(ids), kind="stable")
    return np.concatenate(labels)[order], np.concatenate(logits)[order]
