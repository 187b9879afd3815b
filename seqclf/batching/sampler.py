"""The plan of an epoch as samplers that yield the rows of a whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DistributedSampler, SequentialSampler

from seqclf.batching.plan import plan_batches


class PlanSampler(DistributedSampler):
    """Yields (B,) positions per step. `set_epoch` is called by Lightning at the start of each epoch.

    `plan`: the keyword arguments of `plan_batches` other than `epoch`. Iteration begins at batch `first`.
    A `DistributedSampler`, because the plan is already shared out among ranks: Lightning would wrap any other sampler
    and share out the share once more.
    """

    def __init__(self, lengths: np.ndarray, **plan: Any):
        lengths = np.asarray(lengths)
        super().__init__(lengths, num_replicas=plan.get("world_size", 1), rank=plan.get("rank", 0), seed=plan["seed"])  # type: ignore[arg-type]
        self.lengths = lengths
        self.plan = plan
        self.first = 0
        self._plan_epoch(0)
        # Of the first epoch, for all epochs and ranks: the others have nearly as many steps, and with one divisor the
        # loss of a row has the same weight from the first step to the last.
        self.mean_rows = len(self.lengths) / max(1, len(self.batches) * plan.get("world_size", 1))

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._plan_epoch(epoch)

    def _plan_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches = plan_batches(self.lengths, epoch=epoch, **self.plan)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.batches[self.first :])

    def __len__(self) -> int:
        """Steps of the whole epoch, wherever it begins: Lightning counts a resumed run from where it was."""
        return len(self.batches)


class FixedSampler(PlanSampler, SequentialSampler):  # type: ignore[misc]
    """The batches of epoch 0 in every epoch, for evaluation and for `overfit_batches`.

    A `SequentialSampler`, because `overfit_batches` replaces any other by one that knows no batches.
    """

    def set_epoch(self, epoch: int) -> None:
        pass
