"""Settings of the process for a training run: seeds, threads, warnings and environment variables.

The settings are restored at the end of the run.
"""

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

from seqclf.training.options import RuntimeOptions

# Warnings of Lightning that do not concern the user.
IGNORED_WARNINGS = (
    ".*does not have many workers.*",
    ".*isinstance.treespec, LeafSpec.*",
    ".*Checkpoint directory.*",
    ".*The number of training batches.*",
    ".*dirpath has changed.*",
    ".*could not find the monitored key.*",
    ".*callbacks used to create the checkpoint.*",  # `resume.left_out` names the settings that add these callbacks
    ".*It is recommended to use .*sync_dist=True.*",  # torchmetrics has already synchronised the values
)
VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "WANDB_SILENT")
LOGGERS = ("lightning.pytorch", "lightning.fabric")


@contextmanager
def process_settings(runtime: RuntimeOptions, seed: int) -> Iterator[None]:
    """Apply the settings of a training run inside the block, and restore the caller's settings at the end.

    Most settings apply to the whole process, so do not run two trainings in one process at the same time. The setting
    for denormal numbers applies only to the current thread.
    """
    threads, flushing = torch.get_num_threads(), flushes_denormal()
    deterministic = torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    variables = {name: os.environ.get(name) for name in VARIABLES}
    with warnings.catch_warnings(), _random_states():
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
    """Restore the states of all random generators at the end of the block, even after an error.

    Lightning's `isolate_rng` does not restore random states after an error.
    """
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
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    # Backpropagation through 200 or more tokens produces denormal gradients. CPUs are 7 to 10 times slower on denormal
    # numbers.
    torch.set_flush_denormal(runtime.flush_denormal)
    pl.seed_everything(seed, workers=True, verbose=False)


def flushes_denormal() -> bool:
    """Return True if this thread rounds denormal numbers to 0. PyTorch can set this state, but cannot read it."""
    return float(torch.tensor(1e-310, dtype=torch.float64) * 0.5) == 0.0
