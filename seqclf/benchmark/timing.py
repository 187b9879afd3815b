"""Timing: the modes of a workload in interleaved rounds of the same steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from seqclf.benchmark.mode_trainer import ModeTrainer
from seqclf.benchmark.modes import MODES, BenchmarkSettings
from seqclf.benchmark.workload import Workload
from seqclf.errors import first_line
from seqclf.system import progress
from seqclf.system.json_result import JsonObject, JsonResult

REFERENCE_MODE = "static"
GRAPH_PAIRS = 24  # forward passes with and without autograd graph


@dataclass(frozen=True)
class ModeTiming(JsonResult):
    """Figures of one mode.

    `first_step_s`: seconds of the first step beyond a later one, for warming up and compiling. `tokens_per_s`: without
    padding. `step_ms`, `step_ms_mean`, `step_ms_p95`: median, mean and 95th percentile of the steps. `graph_ms`: what
    building the autograd graph adds to a forward pass, None for compiled code, which has no pass without it. `loss`,
    `recall`: after the same steps. `time_ratio`: time of a round over that of the static mode, None if that did not
    run. `memory_mb`: peak memory of the process, or on a GPU of the device. `step_memory_mb`: what training added to
    the process. `round_seconds`: (R,) seconds of each round, not part of the report.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"time_ratio", "memory_mb", "step_memory_mb"})

    first_step_s: float
    compiled_graphs: int
    tokens_per_s: float
    step_ms: float
    step_ms_mean: float
    step_ms_p95: float
    padding_efficiency: float
    graph_ms: float | None
    loss: float
    recall: float
    time_ratio: float | None = None
    memory_mb: float | None = None
    step_memory_mb: float | None = None
    round_seconds: tuple[float, ...] = ()

    @property
    def padding(self) -> float:
        """Share of the computed cells that is padding."""
        return 1 - self.padding_efficiency

    def to_dict(self) -> JsonObject:
        """Return plain values, without those that were not measured on this device."""
        values = super().to_dict()
        del values["round_seconds"]
        return values


class WarmUp(NamedTuple):
    """Cost of the first step of a mode: its seconds beyond a later step, and the graphs that were compiled."""

    first_step_s: float
    compiled_graphs: int


def time_modes(
    workload: Workload, modes: list[str], rounds: int, settings: BenchmarkSettings
) -> tuple[dict[str, ModeTiming], dict[str, str]]:
    """Return timings by mode, and the error messages of modes that cannot run.

    Every round runs all steps of each mode from the initial weights. The modes take turns in going first, so that a
    machine that slows down over time slows all of them.
    """
    trainers: dict[str, ModeTrainer] = {}
    warm_ups: dict[str, WarmUp] = {}
    errors: dict[str, str] = {}
    for name in progress.track(modes, f"{workload.name}: warming up and compiling", total=len(modes), unit="modes"):
        # All modes stay in memory until the last round, or the rounds could not be interleaved.
        try:
            trainers[name], warm_ups[name] = _warm_up(name, workload, settings)
        except Exception as error:  # such as a missing compiler: the other modes still have their figures
            errors[name] = f"{type(error).__name__}: {first_line(error)}"[:200]
    seconds = _run_rounds(trainers, rounds)
    timings = {
        name: _timing(trainer, warm_ups[name], seconds[name])
        for name, trainer in progress.track(
            trainers.items(), "timing graphs, measuring losses", total=len(trainers), unit="modes"
        )
    }
    return _with_time_ratios(timings), errors


def _warm_up(name: str, workload: Workload, settings: BenchmarkSettings) -> tuple[ModeTrainer, WarmUp]:
    """Run every step once, which compiles."""
    # Graphs of earlier modes would be reused, and counted as those of this one.
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    trainer = ModeTrainer(MODES[name], workload, settings)
    seconds = [trainer.step(rows) for rows in workload.batches]
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    later = float(np.median(seconds[1:])) if len(seconds) > 1 else 0.0
    return trainer, WarmUp(first_step_s=seconds[0] - later, compiled_graphs=int(graphs))


def _run_rounds(trainers: dict[str, ModeTrainer], rounds: int) -> dict[str, np.ndarray]:
    """Return the seconds (rounds, steps) of each mode."""
    names = list(trainers)
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    with progress.stage("timing the modes in turn", total=rounds * len(names), unit="runs") as timing:
        for round_index in range(rounds):
            shift = round_index % max(1, len(names))
            for name in names[shift:] + names[:shift]:
                trainer = trainers[name]
                trainer.reset()
                seconds[name].append([trainer.step(rows) for rows in trainer.workload.batches])
                timing.advance()
    return {name: np.array(values) for name, values in seconds.items()}


def _timing(trainer: ModeTrainer, warm_up: WarmUp, seconds: np.ndarray) -> ModeTiming:
    """Summarize (rounds, steps) seconds, and measure what the trained model gives."""
    workload = trainer.workload
    tokens = int(workload.split.sequences.lengths[np.concatenate(workload.batches)].sum())
    round_seconds = seconds.sum(axis=1)
    graph_ms = _graph_ms(trainer)
    loss, recall = trainer.evaluate()  # before the memory is measured, which takes one more step
    # Medians, so that a pause of the machine during one step does not decide.
    return ModeTiming(
        first_step_s=warm_up.first_step_s,
        compiled_graphs=warm_up.compiled_graphs,
        tokens_per_s=tokens / float(np.median(round_seconds)),
        step_ms=1e3 * float(np.median(seconds)),
        step_ms_mean=1e3 * float(np.median(seconds.mean(axis=1))),
        step_ms_p95=1e3 * float(np.percentile(seconds, 95)),
        padding_efficiency=trainer.padding_efficiency(),
        graph_ms=graph_ms,
        loss=loss,
        recall=recall,
        memory_mb=_device_peak_mb(trainer),
        round_seconds=tuple(round_seconds.tolist()),
    )


def _device_peak_mb(trainer: ModeTrainer) -> float | None:
    """Return the peak memory of the largest step on a GPU. On the CPU, `seqclf.benchmark.memory` measures it."""
    if trainer.settings.device != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    trainer.step(trainer.workload.longest_batch)
    return torch.cuda.max_memory_allocated() / 1e6


def _graph_ms(trainer: ModeTrainer) -> float | None:
    """Return what building the autograd graph adds to a forward pass, in milliseconds.

    The median over pairs of passes on the same rows, either one first in turn. None for compiled code, which always
    prepares the backward pass.
    """
    if trainer.mode.compiled:
        return None
    batches = trainer.workload.batches
    added_seconds = []
    for pair in range(GRAPH_PAIRS):
        order = (True, False) if pair % 2 else (False, True)
        rows = batches[pair // 2 % len(batches)]
        seconds = {build_graph: trainer.forward_seconds(rows, build_graph) for build_graph in order}
        added_seconds.append(seconds[True] - seconds[False])
    return 1e3 * float(np.median(added_seconds))


def _with_time_ratios(timings: dict[str, ModeTiming]) -> dict[str, ModeTiming]:
    """Compare each mode with the static one: the median over the ratios of each round."""
    if REFERENCE_MODE not in timings:
        return timings
    reference = np.array(timings[REFERENCE_MODE].round_seconds)
    return {
        name: replace(timing, time_ratio=float(np.median(np.array(timing.round_seconds) / reference)))
        for name, timing in timings.items()
    }
