"""A clear error when training runs out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.errors import InputError
from seqclf.system.memory_errors import is_out_of_memory


@contextmanager
def explained_memory(task: Any, batches: SequenceDataModule) -> Iterator[None]:
    """Convert an out-of-memory error in the block into an InputError that describes the last training batch."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.batching.max_tokens
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # a batch of one sequence may exceed the limit
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        raise InputError(
            f"step {task.global_step + 1}",
            f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens",
            f"{remedy}, or the size of the model",
        ) from None
