"""The plan as a sampler: it yields the rows of a whole batch, and knows its epoch and where in it to begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from seqclf.batching.plan import plan_batches


class PlanSampler(Sampler[np.ndarray]):
    """Yields (B,) positions per step. `set_epoch` is called by Lightning at the start of each epoch.

    `plan`: the keyword arguments of `plan_batches` other than `epoch`.
    """

    def __init__(self, lengths: np.ndarray, **plan: Any):
        self.lengths = np.asarray(lengths)
        self.plan = plan
        self.epoch = -1
        self.first = 0
        self.set_epoch(0)
        # Of the first epoch, for all epochs and ranks: the others have nearly as many steps, and with one divisor the
        # loss of a row has the same weight from the first step to the last.
        self.mean_rows = len(self.lengths) / max(1, len(self.batches) * plan.get("world_size", 1))

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.first = 0
            self.batches = plan_batches(self.lengths, epoch=epoch, **self.plan)

    def begin(self, epoch: int, step: int) -> None:
        """Go on with `step` of `epoch`; the epochs after it begin at their first step."""
        self.set_epoch(epoch)
        self.first = step

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.batches[self.first :])

    def __len__(self) -> int:
        """Steps of the whole epoch, wherever it begins: Lightning counts a resumed run from where it was."""
        return len(self.batches)
