"""Rows of a batch with the same tokens under different labels, whose loss no model can bring to zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from seqclf.data.storage.ragged import Ragged, Split
from seqclf.training.debugging.row_names import row_name

MOST_SHOWN = 3


def contradictions(sequences: Ragged, labels: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return groups of `rows` (indices in the split) that have the same tokens, and not all the same label.

    >>> sequences = Ragged(np.array([0, 1, 2, 3]), {"token": np.array([5, 6, 5])})
    >>> contradictions(sequences, np.array([0, 0, 1]), np.arange(3))
    [array([0, 2])]
    """
    by_tokens: dict[tuple[bytes, ...], list[int]] = {}
    for row in sorted(int(row) for row in rows):
        span = slice(sequences.offsets[row], sequences.offsets[row + 1])
        key = tuple(np.ascontiguousarray(values[span]).tobytes() for values in sequences.fields.values())
        by_tokens.setdefault(key, []).append(row)
    groups = [np.array(group) for group in by_tokens.values()]
    return [group for group in groups if len(np.unique(labels[group])) > 1]


def lowest_loss(loss: nn.Module, groups: Sequence[np.ndarray], labels: np.ndarray, classes: int, rows: int) -> float:
    """Return the mean loss of a batch of `rows` whose logits fit everything but contradictory `groups`.

    The best logits of equal tokens are the log shares of their labels. That is exact for cross-entropy.
    """
    total = 0.0
    device = next((buffer.device for buffer in loss.buffers()), torch.device("cpu"))
    with torch.no_grad():
        for group in groups:
            counts = np.bincount(labels[group], minlength=classes)
            logits = torch.tensor(counts / counts.sum(), dtype=torch.float32, device=device).clamp(min=1e-9).log()
            group_labels = torch.from_numpy(labels[group]).to(device)
            total += float(loss(logits.expand(len(group), -1), group_labels)) * len(group)
    return total / rows


def contradiction_text(groups: Sequence[np.ndarray], split: Split, classes: Sequence[str]) -> str:
    """Return a sentence that names the rows of contradictory groups and their labels."""
    shown = []
    for group in groups[:MOST_SHOWN]:
        by_label: Mapping[int, int] = {int(split.labels[row]): int(row) for row in group[::-1]}
        rows = [f"{row_name(split, row)} is {classes[label]}" for label, row in sorted(by_label.items())]
        shown.append(" and ".join(rows))
    more = f"; and {len(groups) - MOST_SHOWN} more" if len(groups) > MOST_SHOWN else ""
    count = sum(map(len, groups))
    return f"{count} rows of the batch have the same tokens under different labels: {'; '.join(shown)}{more}"
