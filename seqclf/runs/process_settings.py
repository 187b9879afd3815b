"""Settings of the process for a training run: seeds, threads, warnings and environment variables."""

from __future__ import annotations

import logging
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import lightning.pytorch as pl
import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.models.rnn.recurrent_cell import RecurrentCell
from seqclf.models.tree_lstm import TreeLSTM
from seqclf.settings.train_settings import RuntimeOptions
from seqclf.system.resources import available_cpus, idle_cpus

# Warnings of Lightning that do not concern the user.
IGNORED_WARNINGS = (
    ".*does not have many workers.*",
    ".*isinstance.treespec, LeafSpec.*",
    ".*Checkpoint directory.*",
    ".*The number of training batches.*",
    ".*dirpath has changed.*",
    ".*could not find the monitored key.*",
    ".*callbacks used to create the checkpoint.*",
    ".*It is recommended to use .*sync_dist=True.*",  # torchmetrics has already synchronised the values
)
OWN_THREADS = "OMP_NUM_THREADS"  # users and launchers of ranks set it
BLAS_THREADS = (OWN_THREADS, "OPENBLAS_NUM_THREADS")
VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "WANDB_SILENT", "WANDB_ERROR_REPORTING")
LOGGERS = ("lightning.pytorch", "lightning.fabric")
# Multiplications of an operation that are worth a thread; on one core, 2**23 take 0.4 ms. Beside other programs, an
# operation on two threads takes 2 to 7 ms longer than on one. On idle cores, two threads take 0.82 to 0.97 of the time
# with 2**20, and 0.81 to 0.86 with 2**21: hidden size 128 and 32 rows, of which a mean batch has fewer (docs/log.md).
WORK_PER_THREAD, IDLE_WORK_PER_THREAD = 2**23, 900_000
ONE_TOKEN_AT_A_TIME = (nn.RNNBase, nn.RNNCellBase, RecurrentCell, TreeLSTM)


@contextmanager
def process_settings(runtime: RuntimeOptions, seed: int) -> Iterator[None]:
    """Apply the settings of a training run inside the block, and restore the caller's settings at the end.

    Most apply to the whole process, so do not run two trainings in one process at the same time. The setting for
    denormal numbers applies only to the current thread.
    """
    threads, flushing = torch.get_num_threads(), flushes_denormal()
    deterministic = torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    variables = {name: os.environ.get(name) for name in VARIABLES}
    with warnings.catch_warnings(), _random_states(), threadpool_limits(blas_threads(runtime), "blas"):
        try:
            _apply(runtime, seed)
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(flushing)
            torch.use_deterministic_algorithms(deterministic)
            torch.backends.cudnn.benchmark = benchmark
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
            for name, value in variables.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def _random_states() -> Iterator[None]:
    """Restore all random states at the end, even after an error, unlike Lightning's `isolate_rng`."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(devices)


def _apply(runtime: RuntimeOptions, seed: int) -> None:
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for pattern in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", pattern)
    set_threads(runtime)
    # Backpropagation through 200 or more tokens produces denormal gradients. CPUs are 7 to 10 times slower on denormal
    # numbers.
    torch.set_flush_denormal(runtime.flush_denormal)
    pl.seed_everything(seed, workers=True, verbose=False)


def flushes_denormal() -> bool:
    """Return True if this thread rounds denormal numbers to 0. PyTorch can set this state, but cannot read it."""
    return float(torch.tensor(1e-310, dtype=torch.float64) * 0.5) == 0.0


def set_threads(runtime: RuntimeOptions) -> None:
    """Set the number of PyTorch's threads: the user's, or at most the CPUs that this process may use."""
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    elif OWN_THREADS not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))


def blas_threads(runtime: RuntimeOptions) -> int | None:
    """Return the number of threads of NumPy and SciPy: the user's, or one, because their waiting threads never sleep.

    None leaves the number that the user set for the process. A ridge regression on two threads took ten times as long
    beside another one, and alone as long as on one thread (docs/log.md).
    """
    return runtime.threads or (None if any(name in os.environ for name in BLAS_THREADS) else 1)


def useful_threads(work: float, available: int, each: int = WORK_PER_THREAD) -> int:
    """Return the number of threads that an operation of `work` multiplications gains from, at most `available`.

    >>> useful_threads(32 * 384 * 96, available=2), useful_threads(32 * 2048 * 1024, available=2)
    (1, 2)
    """
    return max(1, min(available, int(work / each)))


def work_of_operation(network: nn.Module, batches: SequenceDataModule) -> float:
    """Return the number of multiplications in the largest operation, for mean rows and tokens of a batch.

    A recurrent network multiplies a matrix with the tokens of one position, other networks with all tokens at once.
    """
    tables = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    matrices = [weight.numel() for weight in network.parameters() if weight.dim() > 1 and id(weight) not in tables]
    recurrent = any(isinstance(module, ONE_TOKEN_AT_A_TIME) for module in network.modules())
    lengths = batches.splits["train"].sequences.lengths
    multiplied = len(lengths) if recurrent else int(lengths.sum())
    return max(matrices, default=0) * multiplied / max(1, len(batches.train_dataloader()))


def training_threads(runtime: RuntimeOptions, network: nn.Module, batches: SequenceDataModule) -> int:
    """Return the number of threads: that of the config or user, or what a network gains from beside other programs."""
    available = torch.get_num_threads()
    if runtime.threads or OWN_THREADS in os.environ:
        return runtime.threads or available
    return useful_threads(work_of_operation(network, batches), available)


def idle_threads(network: nn.Module, batches: SequenceDataModule) -> int | None:
    """Return the number of threads, with idle cores, of a network that may gain from them, else None."""
    work, available = work_of_operation(network, batches), torch.get_num_threads()
    busy, most = useful_threads(work, available), useful_threads(work, available, IDLE_WORK_PER_THREAD)
    return max(busy, min(most, idle_cpus())) if most > busy else None


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let PyTorch use `threads` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
