"""Class counts by split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.system.json_result import JsonObject


@dataclass(frozen=True)
class ClassCounts:
    """Rows of one class: `rows` by split, and their `share` of the rows of all splits."""

    label: str
    rows: dict[str, int]
    share: float

    def to_dict(self) -> JsonObject:
        """Return plain values, with one key per split."""
        return {"label": self.label, **self.rows, "share": self.share}


def count_classes(labels: Mapping[str, np.ndarray], classes: Sequence[str]) -> list[ClassCounts]:
    """Count the rows of each class in each split, in the order of `classes`.

    `labels`: the (N,) class codes of each split.

    >>> labels = {"train": np.array([0, 0, 1]), "test": np.array([1])}
    >>> for counts in count_classes(labels, ["no", "yes"]):
    ...     print(counts.label, counts.rows, counts.share)
    no {'train': 2, 'test': 0} 0.5
    yes {'train': 1, 'test': 1} 0.5
    """
    # `minlength`, because a split may lack the last classes.
    counts = {split: np.bincount(codes, minlength=len(classes)) for split, codes in labels.items()}
    total_by_class = np.sum(list(counts.values()), axis=0)
    return [
        ClassCounts(
            label=label,
            rows={split: int(by_class[code]) for split, by_class in counts.items()},
            share=float(total_by_class[code] / total_by_class.sum()),
        )
        for code, label in enumerate(classes)
    ]
