"""The machine and the software that figures were measured on."""

from __future__ import annotations

import multiprocessing
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from seqclf.bench.mode_trainer import MODES, BenchmarkSettings, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.system import progress
from seqclf.system.environment import peak_mb, resident_mb


@dataclass(frozen=True)
class Machine:
    """`name`: model of the processor, or of the GPU. `threads`: of PyTorch on the CPU."""

    device: str
    name: str
    cores: int | None
    threads: int
    precision: str
    torch: str
    python: str


def describe_machine(device: str, precision: str) -> Machine:
    """Describe this machine, for figures of a `device` ("cpu" or "cuda")."""
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
    # On Linux, platform.processor() is empty or says only "x86_64".
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# Memory: the peak of each mode in a fresh process, and growth over many ragged steps.

PEAKS_TITLE = "measuring memory in new processes"
BLOCKS = 20
T_95 = 2.10  # 97.5 % quantile of Student's t distribution with BLOCKS - 2 degrees of freedom
LEAK_SHARE = 0.01  # least growth over the measured steps, as a share of all memory


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a process, and what training added to it."""

    memory_mb: float
    step_memory_mb: float


@dataclass(frozen=True)
class MemoryGrowth:
    """Growth of memory over `steps` steps, with the 95 % confidence interval [`low`, `high`] of the same unit."""

    steps: int
    mb_per_1000_steps: float
    low: float
    high: float
    leaks: bool


def measure_peak(workload: Workload, mode: str, settings: BenchmarkSettings, threads: int) -> PeakMemory:
    """Return the peak memory of training in a mode, measured in a separate process."""
    # A process never gives its peak back, so modes that share one would all report the largest.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh_process:
        return fresh_process.submit(_measure_peak, workload, mode, settings, threads).result()


def _measure_peak(workload: Workload, mode: str, settings: BenchmarkSettings, threads: int) -> PeakMemory:
    # A spawned process has PyTorch's defaults, not the settings of its parent.
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    trainer = ModeTrainer(MODES[mode], workload, settings)
    before = resident_mb()
    # Twice, as the first step has no optimizer state and no cached buffers yet.
    for rows in (workload.longest_batch, workload.batches[0], workload.longest_batch):
        trainer.step(rows)
    peak = peak_mb()
    return PeakMemory(memory_mb=peak, step_memory_mb=peak - before)


def measure_growth(trainer: ModeTrainer, steps: int) -> MemoryGrowth:
    """Measure the growth of memory over `steps` ragged steps, after as many steps to settle."""
    batches = trainer.workload.batches
    used_mb = []
    for step in progress.track(range(2 * steps), "watching memory over ragged steps", total=2 * steps, unit="steps"):
        trainer.step(batches[step % len(batches)])
        if step >= steps:
            used_mb.append(_used_mb(trainer.settings.device))
    return fit_growth(np.array(used_mb))


def fit_growth(used_mb: np.ndarray) -> MemoryGrowth:
    """Fit a line to the memory (S,) in MB after each step.

    Least squares over means of blocks, since neighbouring steps are correlated. A leak is growth that is significantly
    above 0 and adds up to more than 1 % of the memory over the steps measured.

    >>> fit_growth(np.full(100, 512.0)).leaks
    False
    >>> growth = fit_growth(512 + 0.5 * np.arange(100))
    >>> growth.leaks, round(growth.mb_per_1000_steps)
    (True, 500)
    """
    block_size = len(used_mb) // BLOCKS
    block_means = used_mb[-block_size * BLOCKS :].reshape(BLOCKS, block_size).mean(axis=1)
    centred_steps = (np.arange(BLOCKS) - (BLOCKS - 1) / 2) * block_size
    slope = float((centred_steps * block_means).sum() / (centred_steps**2).sum())
    residuals = block_means - block_means.mean() - slope * centred_steps
    margin = T_95 * float(np.sqrt((residuals**2).sum() / (BLOCKS - 2) / (centred_steps**2).sum()))
    low, high = 1000 * (slope - margin), 1000 * (slope + margin)
    leaks = low > 0 and slope * len(used_mb) > LEAK_SHARE * float(used_mb.mean())
    return MemoryGrowth(len(used_mb), 1000 * slope, low, high, bool(leaks))


def _used_mb(device: str) -> float:
    return torch.cuda.memory_allocated() / 1e6 if device == "cuda" else resident_mb()
