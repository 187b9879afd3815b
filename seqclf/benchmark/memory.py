"""Memory: the peak of each mode in a process of its own, and whether it grows while ragged steps go by."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch

from seqclf.benchmark.modes import MODES, Contender, Settings
from seqclf.benchmark.workload import Workload
from seqclf.system.memory import peak_mb, resident_mb

BLOCKS = 20
T_95 = 2.10  # Student's t for BLOCKS - 2 degrees of freedom
MOST_GROWTH = 0.01


def peaks(workload: Workload, modes: list[str], settings: Settings, threads: int) -> dict[str, Any]:
    """Mode → `memory_mb`, the peak of its process, and `step_memory_mb`, what training added to it."""
    found = {}
    for name in modes:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            found[name] = fresh.submit(_peak, workload, name, settings, threads).result()
    return found


def _peak(workload: Workload, name: str, settings: Settings, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    contender = Contender(MODES[name], workload, settings)
    before = resident_mb()
    for rows in (workload.costliest, workload.updates[0], workload.costliest):
        contender.update(rows)
    peak = peak_mb()
    return {"memory_mb": peak, "step_memory_mb": peak - before}


def leak_test(contender: Contender, steps: int) -> dict[str, Any]:
    """Slope of memory over `steps` ragged updates, after as many again to settle: MB per 1000 steps, with its 95 %
    confidence interval (least squares over means of blocks, as neighbouring steps are alike)."""
    updates = contender.workload.updates
    for step in range(steps):
        contender.update(updates[step % len(updates)])
    used = []
    for step in range(steps):
        contender.update(updates[step % len(updates)])
        used.append(_used_mb(contender.settings.device))
    return slope(np.array(used))


def slope(used: np.ndarray) -> dict[str, Any]:
    """`used`: (S,) MB after each step. A leak: surely above 0, and more than 1 % of all over the steps measured."""
    size = len(used) // BLOCKS
    means = used[-size * BLOCKS :].reshape(BLOCKS, size).mean(axis=1)
    place = (np.arange(BLOCKS) - (BLOCKS - 1) / 2) * size
    rise = float((place * means).sum() / (place**2).sum())
    rest = means - means.mean() - rise * place
    error = T_95 * float(np.sqrt((rest**2).sum() / (BLOCKS - 2) / (place**2).sum()))
    low, high = 1000 * (rise - error), 1000 * (rise + error)
    leaks = low > 0 and rise * len(used) > MOST_GROWTH * float(used.mean())
    return {"steps": len(used), "mb_per_1000_steps": 1000 * rise, "low": low, "high": high, "leaks": bool(leaks)}


def _used_mb(device: str) -> float:
    return torch.cuda.memory_allocated() / 1e6 if device == "cuda" else resident_mb()
