"""Detection of lost ranks while several ranks train one model, and the error message that names the lost ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.distributed import DistError
from torch.distributed.distributed_c10d import _get_default_store

from seqclf.errors import InputError

BEAT_S = 0.5  # seconds between two heartbeats of a rank
SILENCE_S = 1.5  # seconds without a heartbeat after which a rank counts as lost
ANSWER_S = 5.0  # seconds that the store of the ranks may take to answer


class SignsOfLife(Callback):
    """Sends heartbeats of this rank to the store of the process group, and reads the heartbeats of the other ranks.

    Each heartbeat increases a counter of its rank in the store. A rank that has stopped or died sends no heartbeats.
    The store answers as long as rank 0 or the agent of torchrun is alive.
    """

    def __init__(self) -> None:
        self.rank, self.world_size = 0, 1
        self.store: Any = None  # a `Store`; its method `clone` is missing in the type stubs of PyTorch
        self.processes: list[Any] = []  # processes that Lightning has started on this machine for other ranks
        self.ended = threading.Event()

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        if trainer.world_size == 1 or self.store is not None:
            return
        self.rank, self.world_size = trainer.global_rank, trainer.world_size
        self.processes = list(getattr(trainer.strategy.launcher, "procs", []))
        store: Any = _get_default_store()
        self.store = store.clone()  # a separate connection, because a connection serves one call at a time
        self.store.set_timeout(timedelta(seconds=ANSWER_S))
        threading.Thread(target=self._beat, args=(self.store.clone(),), name="signs-of-life", daemon=True).start()

    def _beat(self, store: Any) -> None:
        with suppress(RuntimeError):  # the store has ended
            while not self.ended.wait(BEAT_S):
                store.add(self._key(self.rank), 1)

    def _key(self, rank: int) -> str:
        return f"seqclf/alive-{rank}"

    def stop(self) -> None:
        self.ended.set()

    def lost(self) -> list[int]:
        """Return the ranks that have ended or do not respond.

        The call takes up to `SILENCE_S` seconds. The list is empty if the lost ranks are unknown.
        """
        dead = [rank for rank, process in enumerate(self.processes, start=1) if process.poll() is not None]
        if dead or self.store is None:
            return dead
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        try:
            before = [self.store.add(self._key(rank), 0) for rank in others]
            time.sleep(SILENCE_S)
            after = [self.store.add(self._key(rank), 0) for rank in others]
        except RuntimeError:
            return [0] if self.rank else []
        return [rank for rank, count, later in zip(others, before, after, strict=True) if count == later]


@contextmanager
def explained_loss(signs: SignsOfLife, rank: int, timeout_s: float, advice: Callable[[], str]) -> Iterator[None]:
    """Convert an error of the process group to an InputError that names the lost ranks.

    `rank`: rank of this process. `timeout_s`: seconds that this rank waits for other ranks. `advice`: function that
    returns a sentence on how to resume the run.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, DistError) and "gloo" not in text.lower() and "NCCL" not in text:
            raise
        lost = signs.lost()
        named = "another rank" if not lost else f"rank{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
        late = "timed out" in text.lower() or "timeout" in text.lower()
        problem = f"did not answer within {timeout_s:g} s (runtime.rank_timeout)" if late else "has ended"
        raise InputError(f"rank {rank}", f"{named} {problem}", advice()) from None
    finally:
        signs.stop()
