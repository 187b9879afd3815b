"""Peak memory of training."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import torch

from seqclf.bench.mode_trainer import Contender, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.system.environment import peak_mb


def training_peak_mb(contender: Contender, workload: Workload) -> float:
    """Return the peak memory of training in MB: of the GPU, or of the process if training runs on the CPU.

    The contender is trained in a process of its own, because the recorded peak of a process never decreases.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh_process:
        return fresh_process.submit(_train, contender, workload, torch.get_num_threads()).result()


def _train(contender: Contender, workload: Workload, threads: int) -> float:
    # A spawned process starts with PyTorch's default settings, so repeat the settings of the parent process.
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    trainer = ModeTrainer(contender, workload)
    # Run the longest batch twice, because optimizer state and cached buffers exist only after the first step.
    for rows in (workload.longest_batch, workload.batches[0], workload.longest_batch):
        trainer.step(rows)
    return torch.cuda.max_memory_allocated() / 1e6 if contender.device == "cuda" else peak_mb()
