"""Number of rows of each class in each split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.system.json_result import JsonObject, JsonResult


@dataclass(frozen=True)
class ClassCounts(JsonResult):
    """Number of rows of one class in each split.

    `rows`: dict split → number of rows of the class. `share`: fraction of all rows that belong to the class.
    """

    label: str
    rows: dict[str, int]
    share: float

    def to_dict(self) -> JsonObject:
        """Return the counts as a flat dict, with one key for each split."""
        return {"label": self.label, **self.rows, "share": self.share}


def count_classes(labels: Mapping[str, np.ndarray], classes: Sequence[str]) -> list[ClassCounts]:
    """Count the rows of each class in each split, in the order of `classes`.

    `labels`: dict split → (N,) class codes.

    >>> labels = {"train": np.array([0, 0, 1]), "test": np.array([1])}
    >>> for counts in count_classes(labels, ["no", "yes"]):
    ...     print(counts.label, counts.rows, counts.share)
    no {'train': 2, 'test': 0} 0.5
    yes {'train': 1, 'test': 1} 0.5
    """
    # `minlength` is needed, because a split may have no row of the last classes.
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
