"""Description of the machine that runs a benchmark, and measurements of memory."""

from __future__ import annotations

import multiprocessing
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from seqclf.bench.mode_trainer import Contender, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.system import progress
from seqclf.system.environment import peak_mb, resident_mb
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class Machine(JsonResult):
    """Machine and software that ran a benchmark.

    `name`: product name of the CPU or GPU. `threads`: number of CPU threads that PyTorch uses.
    """

    device: str
    name: str
    cores: int | None
    threads: int
    precision: str
    torch: str
    python: str


def describe_machine(device: str, precision: str) -> Machine:
    """Return the description of this machine. `device`: "cpu" or "cuda", the device that runs the benchmark."""
    return Machine(
        device=device,
        name=torch.cuda.get_device_name() if device == "cuda" else _processor_name(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        precision=precision,
        torch=torch.__version__,
        python=platform.python_version(),
    )


def _processor_name() -> str:
    # On Linux, platform.processor() returns an empty string or only "x86_64".
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# Memory: the peak memory of each contender, and the growth of memory over many steps with batches of different lengths.

BLOCKS = 20  # number of blocks that the steps are divided into; a line is fitted to the mean memory of each block
T_95 = 2.10  # 97.5 % quantile of Student's t distribution with BLOCKS - 2 degrees of freedom
LEAK_SHARE = 0.01  # fraction of the mean memory; growth over all measured steps is no leak below this fraction


class PeakMemory(NamedTuple):
    """Peak memory of training in MB.

    `memory_mb`: peak memory of the training process, or on a GPU the peak GPU memory. `step_memory_mb`: peak memory
    minus the memory before the first training step, or `None` on a GPU.
    """

    memory_mb: float
    step_memory_mb: float | None = None


@dataclass(frozen=True)
class MemoryGrowth(JsonResult):
    """Growth of memory during `steps` optimizer steps.

    `low`, `high`: bounds of the 95 % confidence interval of `mb_per_1000_steps`. `leaks`: True if the growth is judged
    to be a leak (see `fit_growth`).
    """

    steps: int
    mb_per_1000_steps: float
    low: float
    high: float
    leaks: bool


def measure_peak(trainer: ModeTrainer) -> PeakMemory:
    """Return the peak memory of training.

    On a GPU, the peak is the GPU memory during a step with the longest batch. On a CPU, the peak is the memory of a
    separate training process.
    """
    if trainer.contender.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        trainer.step(trainer.workload.longest_batch)
        return PeakMemory(torch.cuda.max_memory_allocated() / 1e6)
    # The recorded peak memory of a process never decreases. If all contenders ran in one process, each contender would
    # report the largest peak so far.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh_process:
        arguments = (trainer.contender, trainer.workload, torch.get_num_threads())
        return fresh_process.submit(_measure_peak, *arguments).result()


def _measure_peak(contender: Contender, workload: Workload, threads: int) -> PeakMemory:
    # A spawned process starts with PyTorch's default settings, so repeat the settings of the parent process.
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    trainer = ModeTrainer(contender, workload)
    before = resident_mb()
    # Run the longest batch twice, because optimizer state and cached buffers exist only after the first step.
    for rows in (workload.longest_batch, workload.batches[0], workload.longest_batch):
        trainer.step(rows)
    peak = peak_mb()
    return PeakMemory(memory_mb=peak, step_memory_mb=peak - before)


def measure_growth(trainer: ModeTrainer, steps: int) -> MemoryGrowth:
    """Measure the growth of memory over `steps` optimizer steps, after as many warm-up steps.

    The batches have different lengths.
    """
    batches = trainer.workload.batches
    used_mb = []
    for step in progress.track(range(2 * steps), "watching memory over ragged steps", total=2 * steps, unit="steps"):
        trainer.step(batches[step % len(batches)])
        if step >= steps:
            on_gpu = trainer.contender.device == "cuda"
            used_mb.append(torch.cuda.memory_allocated() / 1e6 if on_gpu else resident_mb())
    return fit_growth(np.array(used_mb))


def fit_growth(used_mb: np.ndarray) -> MemoryGrowth:
    """Fit a line to memory measurements, and return its slope as the growth of memory.

    `used_mb`: (S,) memory in MB after each of S steps.

    The steps are divided into blocks, and the line is fitted to the mean memory of each block by least squares. Single
    steps are not used, because the memory after neighbouring steps is correlated. The growth is a leak if the growth is
    significantly above 0, and if the growth over all measured steps exceeds 1 % of the mean memory.

    >>> fit_growth(np.full(100, 512.0)).leaks
    False
    >>> growth = fit_growth(512 + 0.5 * np.arange(100))
    >>> growth.leaks, round(growth.mb_per_1000_steps)
    (True, 500)
    """
    block_size = len(used_mb) // BLOCKS
    block_means = used_mb[-block_size * BLOCKS :].reshape(BLOCKS, block_size).mean(axis=1)
    (slope, _), covariance = np.polyfit(block_size * np.arange(BLOCKS), block_means, 1, cov=True)
    margin = T_95 * float(np.sqrt(covariance[0, 0]))
    low, high = float(1000 * (slope - margin)), float(1000 * (slope + margin))
    leaks = low > 0 and slope * len(used_mb) > LEAK_SHARE * float(used_mb.mean())
    return MemoryGrowth(len(used_mb), float(1000 * slope), low, high, bool(leaks))
