"""Memory of a training step: measured on a copy of the network, and explained where it is full."""

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
from seqclf.models.network import as_network
from seqclf.system.memory_errors import is_out_of_memory

INTERVAL_S = 0.001  # between two readings of the process's memory
# Blocks below 32 MB that were freed stay with the C allocator, in pieces. Runs took up to this much beyond their steps.
FRAGMENTS = 512 * 10**6
MOMENTS = 2  # numbers that Adam keeps of each weight
CGROUPS = Path("/sys/fs/cgroup")


class StepMemory:
    """Measures the memory that training steps need beyond what was taken when the object was made.

    `task`: a `SequenceTask` in a Trainer, on its device. Steps run on a copy of its network, with random numbers of
    their own, so that training is the same afterwards. `free`: bytes that this process may take on the device.
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
        # Several ranks also keep their gradients in buffers of a common form.
        copies = MOMENTS + (self.trainer.world_size > 1)
        self.kept = copies * sum(weight.numel() * weight.element_size() for weight in weights)

    def __call__(self, batch: Batch) -> float:
        """Return the bytes that a step on a batch needs, inf if it runs out of memory."""
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
            total = (
                as_network(self.network)
                .training_loss(batch.fields, batch.lengths, batch.host_lengths, batch.labels, self.loss)
                .total
            )
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
        """Yield a list that holds readings of the memory in use, among them the highest, at the end of the block."""
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
    """Raise InputError, with the last batch, for an error about memory.

    `task`: a `SequenceTask`. `batches`: those that it trains on.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        (rows, longest), limit = task.batch_shape, batches.max_tokens()
        lengths = batches.splits["train"].sequences.lengths
        remedy = f"lower batching.max_tokens (now {limit})"
        if limit < 2 * longest:  # which a batch of one sequence may exceed
            remedy = f"set data.max_length=N: the longest of the training sequences has {int(lengths.max()):,} tokens"
        raise InputError(
            f"step {task.global_step + 1}",
            f"out of memory with a batch of {rows:,} sequences of up to {longest:,} tokens",
            f"{remedy}, or the size of the model",
        ) from None


def _free_in_cgroup() -> int:
    """Return the bytes below the lowest limit of this process's control groups (version 2), or a very large number."""
    own = Path("/proc/self/cgroup")
    lines = own.read_text().splitlines() if own.is_file() else []
    path = next((line[4:] for line in lines if line.startswith("0::/")), "")
    folder, free = CGROUPS / path, 2**62
    for level in (folder, *folder.parents):
        try:
            limit = (level / "memory.max").read_text().strip()
            if limit != "max":
                free = min(free, max(0, int(limit) - _used(level)))
        except OSError:  # not a control group, or not readable
            pass
        if level == CGROUPS:
            break
    return free


def _used(group: Path) -> int:
    """Return the bytes in use by a control group, without the pages of files that the system can drop."""
    numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int((group / "memory.current").read_text()) - int(numbers.get("inactive_file", 0))
