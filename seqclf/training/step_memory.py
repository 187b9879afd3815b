"""Measurement of the memory that a training step needs, and clear errors when training runs out of memory."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from seqclf.batching.datamodule import Batch, SequenceDataModule
from seqclf.errors import InputError
from seqclf.system.memory_errors import is_out_of_memory

INTERVAL_S = 0.001  # seconds between two readings of the memory of this process
# Bytes that are reserved for memory fragmentation, because the C allocator keeps freed blocks below 32 MB. In
# measurements, runs took up to this many bytes in addition to the memory of their steps.
FRAGMENTS = 512 * 10**6
MOMENTS = 2  # numbers per weight in the optimizer state of Adam
CGROUPS = Path("/sys/fs/cgroup")


class StepMemory:
    """Measures how much memory a training step needs beyond the memory that is in use when this object is created.

    `task`: a `SequenceTask` that is attached to a Trainer and is on its device. The measured steps run on a copy of the
    network and with a separate random state, so that they do not affect the training. `free`: bytes that this process
    may still allocate on the device.
    """

    def __init__(self, task: Any):
        self.trainer: Any = task.trainer
        self.device: torch.device = self.trainer.strategy.root_device
        if self.device.type not in ("cpu", "cuda"):
            raise InputError(
                "batching.max_tokens=auto", f"cannot measure the memory of {self.device.type}", "give a number"
            )
        self.free = self._free()
        self.taken = self._taken()
        self.network, self.loss = copy.deepcopy(task.model).train(), copy.deepcopy(task.loss)
        weights = [weight for weight in self.network.parameters() if weight.requires_grad]
        # With several ranks, communication buffers hold an additional copy of the gradients.
        copies = MOMENTS + (self.trainer.world_size > 1)
        self.kept = copies * sum(weight.numel() * weight.element_size() for weight in weights)

    def __call__(self, batch: Batch) -> float:
        """Return the bytes that a training step on a batch needs, or inf if the step runs out of memory."""
        try:
            with torch.random.fork_rng(devices=self._gpus()), self._watched() as readings:
                self._step(batch.to(self.device))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return math.inf
        finally:
            self.network.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return max(readings) - self.taken + self.kept

    def _step(self, batch: Batch) -> None:
        plugin = self.trainer.precision_plugin
        batch = plugin.convert_input(batch)
        with plugin.train_step_context():
            total = self.network.training_loss(
                batch.fields, batch.lengths, batch.host_lengths, batch.labels, self.loss
            ).total
        total.backward()

    def _gpus(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def _free(self) -> int:
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            return free + unused
        free = min(psutil.virtual_memory().available, _free_in_cgroup()) // max(1, self.trainer.num_devices)
        return max(0, free - FRAGMENTS)

    def _taken(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device)
        return psutil.Process().memory_info().rss

    @contextmanager
    def _watched(self) -> Iterator[list[int]]:
        """Yield a list of memory readings in bytes, which is filled while the block runs.

        The readings include the peak.
        """
        readings: list[int] = []
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            yield readings
            readings.append(torch.cuda.max_memory_allocated(self.device))
            return
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(INTERVAL_S):
                readings.append(self._taken())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield readings
        finally:
            ended.set()
            reader.join()
            readings.append(self._taken())


@contextmanager
def explained_memory(task: Any, batches: SequenceDataModule) -> Iterator[None]:
    """Convert an out-of-memory error in the block into an InputError that describes the last batch.

    `task`: the `SequenceTask` in training. `batches`: the data module with the training batches.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.max_tokens()
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # a batch of one sequence may exceed the limit
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        raise InputError(
            f"step {task.global_step + 1}",
            f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens",
            f"{remedy}, or the size of the model",
        ) from None


def _free_in_cgroup() -> int:
    """Return the free bytes in the control groups (cgroup version 2) of this process.

    The result is 2**62 without a memory limit.
    """
    own = Path("/proc/self/cgroup")
    lines = own.read_text().splitlines() if own.is_file() else []
    path = next((line[4:] for line in lines if line.startswith("0::/")), "")
    folder, free = CGROUPS / path, 2**62
    for level in (folder, *folder.parents):
        try:
            limit = (level / "memory.max").read_text().strip()
            if limit != "max":
                free = min(free, max(0, int(limit) - _used(level)))
        except OSError:  # the folder is not a control group, or its files are not readable
            pass
        if level == CGROUPS:
            break
    return free


def _used(group: Path) -> int:
    """Return the bytes that a control group uses. Cached file pages that the system can free are not counted."""
    numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int((group / "memory.current").read_text()) - int(numbers.get("inactive_file", 0))
