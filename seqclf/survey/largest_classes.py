"""The classes that a survey looks at one by one."""

from __future__ import annotations

import numpy as np

from seqclf.data.storage.dataset import Dataset


def largest_classes(dataset: Dataset, most: int) -> list[int]:
    """Return the codes of the classes with the most training rows, the largest first, the positive one included."""
    counts = np.bincount(dataset.splits["train"].labels, minlength=len(dataset.classes))
    order = [int(code) for code in np.argsort(-counts, kind="stable") if counts[code]]
    positive = None if dataset.positive is None else dataset.classes.index(dataset.positive)
    if positive is not None and positive in order[most:]:
        return [*order[: most - 1], positive]
    return order[:most]
