"""Loader of training batches that resumes inside an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from seqclf.batching.sampler import PlanSampler
from seqclf.data.storage.prefetch import prefetched


class TrainingLoader(DataLoader):
    """Yields the batches of an epoch from the first one that was not trained on.

    `first_batch`: called when an epoch begins, returns the index of that batch. `threaded`: gather batches ahead, in a
    thread.
    """

    sampler: PlanSampler

    def __init__(self, *arguments: Any, first_batch: Callable[[], int], threaded: bool, **options: Any):
        super().__init__(*arguments, **options)
        self.first_batch = first_batch
        self.threaded = threaded

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator: its body runs when the first batch is read. Lightning makes the iterator before it restores the
        # progress of a checkpoint, so the start of a resumed epoch is not known any earlier.
        self.sampler.first = self.first_batch()
        batches = super().__iter__()
        yield from prefetched(batches) if self.threaded else batches

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, as the position in the epoch is the trainer's.

        This method and the next one signal to Lightning that the loader can resume.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
