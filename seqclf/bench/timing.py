"""Timing in interleaved rounds of the same steps: of the modes of a model, or of several models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import torch

from seqclf.bench.mode_trainer import MODES, BenchmarkSettings, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.errors import InputError, first_line
from seqclf.system import progress
from seqclf.system.json_result import JsonObject, JsonResult

Result = TypeVar("Result")

REFERENCE_MODE = "static"
GRAPH_PAIRS = 24  # forward passes with and without autograd graph


@dataclass(frozen=True)
class ModeTiming(JsonResult):
    """Figures of training in one mode.

    `first_step_s`: seconds of the first step beyond a later one, for warming up and compiling. `tokens_per_s`: without
    padding. `step_ms`, `step_ms_mean`, `step_ms_p95`: median, mean and 95th percentile of the steps. `graph_ms`: what
    building the autograd graph adds to a forward pass, None for compiled code, which has no pass without it. `loss`,
    `recall`: after the same steps. `time_ratio`: time of a round over that of the reference, None if that did not
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


class WarmTrainer(NamedTuple):
    """A trainer that has run every step once.

    `first_step_s`: seconds of the first step beyond a later one. `compiled_graphs`: number of graphs compiled.
    """

    trainer: ModeTrainer
    first_step_s: float
    compiled_graphs: int


def time_modes(
    workload: Workload, modes: list[str], rounds: int, settings: BenchmarkSettings
) -> tuple[dict[str, ModeTiming], dict[str, str]]:
    """Return timings by mode, and the error messages of modes that cannot run. See `time_trainers`."""
    makers = {name: partial(ModeTrainer, MODES[name], workload, settings) for name in modes}
    trainers, errors = warm_up_trainers(makers, f"{workload.name}: warming up and compiling")
    return time_trainers(trainers, rounds, REFERENCE_MODE), errors


def warm_up_trainers(
    makers: Mapping[str, Callable[[], ModeTrainer]], title: str
) -> tuple[dict[str, WarmTrainer], dict[str, str]]:
    """Make trainers and run every step of each once. Return them, and the error messages of those that cannot run."""
    trainers: dict[str, WarmTrainer] = {}
    errors: dict[str, str] = {}
    for name in progress.track(makers, title, total=len(makers), unit="runs"):
        # All trainers stay in memory until the last round, or the rounds could not be interleaved.
        try:
            trainers[name] = _warm_up(makers[name])
        except Exception as error:  # such as a missing compiler: the others still have their figures
            errors[name] = error_text(error)
    return trainers, errors


def time_trainers(trainers: Mapping[str, WarmTrainer], rounds: int, reference: str) -> dict[str, ModeTiming]:
    """Return the timing of each trainer. Every round runs all its steps from the initial weights.

    `reference`: name of the trainer that the others are compared with.
    """

    def run(name: str) -> list[float]:
        trainer = trainers[name].trainer
        trainer.reset()
        return [trainer.step(rows) for rows in trainer.workload.batches]

    seconds = in_turn(list(trainers), rounds, run, "timing the steps in turn")
    timings = {
        name: _timing(warm, np.array(seconds[name]))
        for name, warm in progress.track(
            trainers.items(), "timing graphs, measuring losses", total=len(trainers), unit="runs"
        )
    }
    if reference not in timings:
        return timings
    ratios = ratios_to(reference, {name: timing.round_seconds for name, timing in timings.items()})
    return {name: replace(timing, time_ratio=ratios[name]) for name, timing in timings.items()}


def in_turn(names: list[str], rounds: int, run: Callable[[str], Result], title: str) -> dict[str, list[Result]]:
    """Return the results of `run(name)` in each of several rounds.

    The names take turns in going first, so that a machine that slows down over time slows all of them.

    >>> in_turn(["a", "b"], 2, str.upper, "shouting")
    {'a': ['A', 'A'], 'b': ['B', 'B']}
    """
    results: dict[str, list[Result]] = {name: [] for name in names}
    with progress.stage(title, total=rounds * len(names), unit="runs") as timing:
        for round_index in range(rounds):
            shift = round_index % max(1, len(names))
            for name in names[shift:] + names[:shift]:
                results[name].append(run(name))
                timing.advance()
    return results


def ratios_to(reference: str, round_seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median over the rounds of the ratio to the reference in the same round, by name.

    >>> ratios_to("a", {"a": [1.0, 2.0, 1.0], "b": [2.0, 4.0, 9.0]})
    {'a': 1.0, 'b': 2.0}
    """
    of_reference = np.array(round_seconds[reference])
    return {name: float(np.median(np.array(seconds) / of_reference)) for name, seconds in round_seconds.items()}


def error_text(error: Exception) -> str:
    """Return one line for an error of a mode or a model that cannot run."""
    text = first_line(error)
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:200]


def _warm_up(make: Callable[[], ModeTrainer]) -> WarmTrainer:
    """Run every step once, which compiles."""
    # Graphs of earlier modes would be reused, and counted as those of this one.
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    trainer = make()
    seconds = [trainer.step(rows) for rows in trainer.workload.batches]
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    later = float(np.median(seconds[1:])) if len(seconds) > 1 else 0.0
    return WarmTrainer(trainer, first_step_s=seconds[0] - later, compiled_graphs=int(graphs))


def _timing(warm: WarmTrainer, seconds: np.ndarray) -> ModeTiming:
    """Summarize (rounds, steps) seconds, and measure what the trained model gives."""
    trainer = warm.trainer
    workload = trainer.workload
    tokens = int(workload.split.sequences.lengths[np.concatenate(workload.batches)].sum())
    round_seconds = seconds.sum(axis=1)
    graph_ms = _graph_ms(trainer)
    loss, recall = trainer.evaluate()  # before the memory is measured, which takes one more step
    # Medians, so that a pause of the machine during one step does not decide.
    return ModeTiming(
        first_step_s=warm.first_step_s,
        compiled_graphs=warm.compiled_graphs,
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
    """Return the peak memory of the largest step on a GPU. On the CPU, `seqclf.bench.machine` measures it."""
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
