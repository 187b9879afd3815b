"""Samplers that yield the rows of one batch after another, as planned for the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from seqclf.batching.plan import plan_batches
from seqclf.data.storage.prefetch import prefetched


class PlanSampler(DistributedSampler):
    """Yields the row indices (B,) of each batch of an epoch. Lightning calls `set_epoch` before each epoch.

    `plan`: the keyword arguments of `plan_batches` other than `epoch`. Iteration begins at the batch index `first`.
    It is a `DistributedSampler` because the plan is already shared out among ranks. Lightning would wrap any other
    sampler and share out the share once more.

    >>> limits = {"max_tokens": 12, "max_sequences": None, "pool_batches": 1, "seed": 0}
    >>> sampler = PlanSampler(np.array([5, 1, 6, 2, 3, 4]), **limits)
    >>> sampler.set_epoch(1)
    >>> batches = [rows.tolist() for rows in sampler]
    >>> sorted(sum(batches, []))
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, lengths: np.ndarray, **plan: Any):
        lengths = np.asarray(lengths)
        world_size, rank = plan.get("world_size", 1), plan.get("rank", 0)
        super().__init__(lengths, num_replicas=world_size, rank=rank, seed=plan["seed"])  # type: ignore[arg-type]
        self.lengths = lengths
        self.plan = plan
        self.first = 0
        self._plan_epoch(0)
        # The mean of the first epoch serves all epochs and ranks: the others have nearly as many steps, and with one
        # divisor the loss of a row has the same weight from the first step to the last.
        self.mean_rows = len(self.lengths) / max(1, len(self.batches) * world_size)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._plan_epoch(epoch)

    def _plan_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches = plan_batches(self.lengths, epoch=epoch, **self.plan)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.batches[self.first :])

    def __len__(self) -> int:
        """Return the number of batches of the epoch, including those before `first`.

        Lightning counts the batches of a resumed epoch from its start.
        """
        return len(self.batches)


class FixedSampler(PlanSampler, SequentialSampler):  # type: ignore[misc]
    """Yields the batches of epoch 0 in every epoch, for evaluation and for `overfit_batches`.

    It is a `SequentialSampler` because `overfit_batches` replaces any other by one that knows no batches.
    """

    def set_epoch(self, epoch: int) -> None:
        pass


# Loader of training batches that resumes inside an epoch.


class TrainingLoader(DataLoader):
    """Yields the batches of an epoch from the first one that was not trained on.

    `first_batch`: called when an epoch begins, returns the index of that batch. `threaded`: gather batches ahead, in a
    thread. `counts_epochs`: each pass draws the batches of the next epoch, for a loop without a Trainer.
    """

    sampler: PlanSampler

    def __init__(
        self, *arguments: Any, first_batch: Callable[[], int], threaded: bool, counts_epochs: bool, **options: Any
    ):
        super().__init__(*arguments, **options)
        self.counts_epochs = counts_epochs
        self.first_batch = first_batch
        self.threaded = threaded

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator: its body runs when the first batch is read. Lightning makes the iterator before it restores the
        # progress of a checkpoint, so the start of a resumed epoch is not known any earlier.
        self.sampler.first = self.first_batch()
        batches = super().__iter__()
        try:
            yield from prefetched(batches) if self.threaded else batches
        finally:
            if self.counts_epochs:
                self.sampler.set_epoch(self.sampler.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, as the position in the epoch is the trainer's.

        This method and the next one signal to Lightning that the loader can resume.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
