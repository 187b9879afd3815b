"""The modes of a workload against each other: interleaved rounds of the same updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqclf.benchmark.modes import MODES, STATIC, Contender, Settings
from seqclf.benchmark.workload import Workload

GRAPH_PAIRS = 24


def race(workload: Workload, modes: list[str], rounds: int, settings: Settings) -> dict[str, dict[str, Any]]:
    """Mode → what it took, or `error`, why it could not run.

    Every round runs all updates of each mode from the first weights, in an order that turns from round to round.
    """
    contenders: dict[str, Contender] = {}
    found: dict[str, dict[str, Any]] = {}
    for name in modes:
        try:
            contenders[name], found[name] = _warm(name, workload, settings)
        except Exception as error:  # a compiler that is missing, a kernel that cannot: told beside the others' times
            found[name] = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:200]}
    seconds: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for turn in range(rounds):
        names = list(contenders)
        shift = turn % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            contenders[name].reset()
            seconds[name].append([contenders[name].update(rows) for rows in workload.updates])
    tokens = int(workload.split.sequences.lengths[np.concatenate(workload.updates)].sum())
    for name, contender in contenders.items():
        own = np.array(seconds[name])  # (rounds, updates)
        found[name] |= {
            "tokens_per_s": tokens / float(np.median(own.sum(axis=1))),
            "step_ms": 1e3 * float(np.median(own)),
            "step_ms_mean": 1e3 * float(np.median(own.mean(axis=1))),
            "step_ms_p95": 1e3 * float(np.percentile(own, 95)),
            "seconds": [float(total) for total in own.sum(axis=1)],
            "padding_efficiency": contender.padding_efficiency(),
            "graph_ms": _graph_ms(contender),
            **contender.quality(),
        }
        if settings.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            contender.update(workload.costliest)
            found[name]["memory_mb"] = torch.cuda.max_memory_allocated() / 1e6
    _compare(found)
    return found


def _warm(name: str, workload: Workload, settings: Settings) -> tuple[Contender, dict[str, Any]]:
    """A contender that has run every update once, and what its first steps cost beyond the later ones."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    contender = Contender(MODES[name], workload, settings)
    seconds = [contender.update(rows) for rows in workload.updates]
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    later = float(np.median(seconds[1:])) if len(seconds) > 1 else 0.0
    return contender, {"first_step_s": seconds[0] - later, "compiled_graphs": int(graphs)}


def _graph_ms(contender: Contender) -> float | None:
    """What building the graph adds to a forward pass: the median of pairs on the same rows, either first in turn.

    Of code that was compiled with the backward pass in view there is no pass without.
    """
    if contender.mode.compiled:
        return None
    updates = contender.workload.updates
    added = []
    for turn in range(GRAPH_PAIRS):
        order = (True, False) if turn % 2 else (False, True)
        seconds = {graph: contender.forward_seconds(updates[turn // 2 % len(updates)], graph) for graph in order}
        added.append(seconds[True] - seconds[False])
    return 1e3 * float(np.median(added))


def _compare(found: dict[str, dict[str, Any]]) -> None:
    """Each mode's time beside that of the plain static one: the median of the rounds' ratios."""
    base = found.get(STATIC[0], {}).get("seconds")
    for own in found.values():
        if base and "seconds" in own:
            own["time_ratio"] = float(np.median(np.array(own["seconds"]) / np.array(base)))
