"""Error message for a rank that ended or stopped while several ranks train one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.distributed import DistError

from seqclf.errors import InputError


@contextmanager
def explained_loss(rank: int, timeout_s: float, advice: Callable[[], str]) -> Iterator[None]:
    """Convert an error of the process group to an InputError.

    `rank`: rank of this process. `timeout_s`: seconds that this rank waits for other ranks. `advice`: function that
    returns a sentence on how to resume the run.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, DistError) and "gloo" not in text.lower() and "NCCL" not in text:
            raise
        is_late = "timed out" in text.lower() or "timeout" in text.lower()
        problem = f"did not answer within {timeout_s:g} s (runtime.rank_timeout)" if is_late else "has ended"
        raise InputError(f"rank {rank}", f"another rank {problem}", advice()) from None
