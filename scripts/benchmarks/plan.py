"""Seconds and memory of the plan of an epoch, and its balance over the ranks.

    python scripts/benchmarks/plan.py [ROWS [RANKS]]        1e7 rows and 1024 ranks by default

Plans an epoch of log-normal lengths (median 33, at most 400 tokens) with the limits of conf/batching for one of the
ranks. Prints one JSON line: `seconds` and `peak_mb` of that rank, with `lengths_mb` for the lengths alone; `steps`;
`padding_efficiency` over all ranks; and the mean and the highest of each step's highest cost by the mean cost of its
ranks, `imbalance` and `worst_imbalance`. A cost is tokens, padding included.
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from seqclf.batching.plan import plan_batches
from seqclf.batching.step_bounds import deal

LIMITS: dict[str, Any] = {"max_tokens": 16384, "max_sequences": 32, "pool_batches": 50, "overhead": 8.0}
BLOCK = 10**6  # rows drawn at a time


def draw_lengths(rows: int) -> np.ndarray:
    """Return log-normal lengths (rows,) int32."""
    generator, lengths = np.random.default_rng(0), np.empty(rows, np.int32)
    for start in range(0, rows, BLOCK):
        block = lengths[start : start + BLOCK]
        block[:] = np.clip(np.exp(generator.normal(3.5, 0.8, len(block))), 2, 400)
    return lengths


def measure(rows: int, ranks: int) -> dict[str, Any]:
    """Plan an epoch and return the result."""
    lengths = draw_lengths(rows)
    begin = time.perf_counter()
    batches = plan_batches(lengths, **LIMITS, seed=0, epoch=0, world_size=ranks, rank=ranks - 1)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    imbalances, computed, last_rank = [], 0, 0
    for step in plan_batches(lengths, **LIMITS, seed=0, epoch=0, ranks=ranks):
        descending = lengths[step]
        bounds = deal(descending, ranks, max_tokens=LIMITS["max_tokens"], max_rows=LIMITS["max_sequences"])
        counts = np.diff(bounds)
        costs = np.where(counts > 0, counts * descending[np.minimum(bounds[:-1], len(step) - 1)].astype(np.int64), 0)
        imbalances.append(costs.max() / costs.mean())
        computed += int(costs.sum())
        last_rank += int(counts[-1])
    assert last_rank == sum(map(len, batches))
    return {
        "rows": rows,
        "ranks": ranks,
        "seconds": round(seconds, 1),
        "peak_mb": round(peak),
        "lengths_mb": round(lengths.nbytes / 2**20),
        "steps": len(batches),
        "padding_efficiency": round(int(lengths.sum(dtype=np.int64)) / computed, 4),
        "imbalance": round(float(np.mean(imbalances)), 4),
        "worst_imbalance": round(float(np.max(imbalances)), 4),
    }


if __name__ == "__main__":
    given = [int(float(argument)) for argument in sys.argv[1:]]
    print(json.dumps(measure(*(given + [10**7, 1024][len(given) :]))))
