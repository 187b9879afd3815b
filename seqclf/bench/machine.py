"""Description of the machine that runs a benchmark, and measurements of memory."""

from __future__ import annotations

import multiprocessing
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch

from seqclf.bench.mode_trainer import Contender, ModeTrainer
from seqclf.bench.workload import Workload
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


class PeakMemory(NamedTuple):
    """Peak memory of training in MB.

    `memory_mb`: peak memory of the training process, or on a GPU the peak GPU memory. `step_memory_mb`: peak memory
    minus the memory before the first training step, or `None` on a GPU.
    """

    memory_mb: float
    step_memory_mb: float | None = None


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
