"""The benchmark: every workload is timed, its memory watched, its structure changed, and the result rated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from seqclf.benchmark.machine import Machine, describe_machine
from seqclf.benchmark.memory import PEAKS_TITLE, MemoryGrowth, measure_growth, measure_peak
from seqclf.benchmark.mode_trainer import ModeTrainer
from seqclf.benchmark.modes import MODES, BenchmarkSettings, modes_of
from seqclf.benchmark.rating import Rating, rate_dynamic
from seqclf.benchmark.structure_changes import StructureChanges, train_changing_structures
from seqclf.benchmark.timing import ModeTiming, time_modes
from seqclf.benchmark.workload import Workload, WorkloadSize, dataset_workload, generate_workload
from seqclf.config.instantiate import Config
from seqclf.data.prepare import DataOptions, FieldCheck, accept_fields, prepare
from seqclf.models.encoder import reads_trees
from seqclf.system import progress
from seqclf.system.json_result import JsonObject


@dataclass(frozen=True)
class WorkloadResult(WorkloadSize):
    """Figures of one workload. `timings` and `errors`: by mode, one or the other for each."""

    timings: dict[str, ModeTiming]
    errors: dict[str, str]
    growth: MemoryGrowth
    structure: StructureChanges
    rating: Rating

    def to_dict(self) -> JsonObject:
        """Return plain values, in the form of the command's last line."""
        timings = {name: timing.to_dict() for name, timing in self.timings.items()}
        return {
            **self.size_dict(),
            "modes": timings | {name: {"error": message} for name, message in self.errors.items()},
            "leak": asdict(self.growth),
            "structure": asdict(self.structure),
            "verdict": asdict(self.rating),
            "work_ratio": self.mean_length / self.max_length,
        }


@dataclass(frozen=True)
class BenchmarkResult:
    """Results of all workloads. `model`: arguments of the network."""

    machine: Machine
    model: Config
    workloads: list[WorkloadResult]

    def to_dict(self) -> JsonObject:
        """Return plain values, with the workloads by name."""
        workloads = {result.name: result.to_dict() for result in self.workloads}
        return {"machine": asdict(self.machine), "model": self.model, "workloads": workloads}


def make_workloads(
    config: Mapping[str, Any], models: Mapping[str, Config], check: FieldCheck = accept_fields
) -> Iterator[dict[str, Workload]]:
    """Yield the workload of `data`, or without it one for each of `lengths`, by model.

    Generated sequences are nodes of trees for models that read trees, and the same for all others. `check`: of the
    fields of `data`, see `prepare`.
    """
    size = (config["batch_size"], config["updates"], config["seed"])
    if config.get("data") is not None:
        dataset = prepare(DataOptions.build(**config["data"]), check)
        yield dict.fromkeys(models, dataset_workload(dataset, *size))
        return
    trees = {name: reads_trees(model) for name, model in models.items()}
    for lengths in config["lengths"]:
        workloads = {kind: generate_workload(lengths, config["sequences"], *size, kind) for kind in set(trees.values())}
        yield {name: workloads[kind] for name, kind in trees.items()}


def run_benchmark(
    config: Mapping[str, Any],
    settings: BenchmarkSettings,
    workloads: Iterable[Workload],
    on_result: Callable[[WorkloadResult], None],
) -> BenchmarkResult:
    """Run all workloads. `on_result` is called with the result of each one when it ends."""
    results = []
    modes = modes_of(settings.model, config["modes"])
    for workload in workloads:
        result = run_workload(workload, settings, modes, config["rounds"], config["leak_steps"])
        results.append(result)
        on_result(result)
    return BenchmarkResult(describe_machine(settings.device, settings.precision), settings.model, results)


def run_workload(
    workload: Workload, settings: BenchmarkSettings, modes: list[str], rounds: int, leak_steps: int
) -> WorkloadResult:
    """Time the modes of a workload, watch memory over `leak_steps`, change the structure, and rate."""
    timings, errors = time_modes(workload, modes, rounds, settings)
    if settings.device == "cpu":  # on a GPU, time_modes has measured the memory of the device
        for mode in progress.track(list(timings), PEAKS_TITLE, total=len(timings), unit="modes"):
            peak = measure_peak(workload, mode, settings, torch.get_num_threads())
            timings[mode] = replace(timings[mode], **asdict(peak))
    # The dynamic mode alone, as its shapes change with every step: what grows is a cache by shape.
    growth = measure_growth(ModeTrainer(MODES["dynamic"], workload, settings), leak_steps)
    structure = train_changing_structures(workload, settings)
    return WorkloadResult(
        **workload.size(),
        timings=timings,
        errors=errors,
        growth=growth,
        structure=structure,
        rating=rate_dynamic(timings, growth, structure),
    )
