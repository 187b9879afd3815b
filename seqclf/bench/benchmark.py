"""Benchmark that measures one model in several modes on each workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from seqclf.bench.machine import Machine, describe_machine, measure_peak
from seqclf.bench.mode_trainer import Contender
from seqclf.bench.options import BenchConfig
from seqclf.bench.timing import TrainingTiming, time_training, warm_up
from seqclf.bench.workload import Workload, WorkloadSize, dataset_workload, generate_workload
from seqclf.config.targets import Config
from seqclf.data.prepare import prepare
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees
from seqclf.runs.tree_fields import check_tree_fields
from seqclf.system import progress
from seqclf.system.json_result import JsonObject

REFERENCE = "static"  # mode that the others are compared with


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload.

    `figures`: dict mode → measurements. `errors`: dict mode → error message. Each mode is in exactly one of the two
    dicts.
    """

    name: str
    size: WorkloadSize
    figures: dict[str, TrainingTiming]
    errors: dict[str, str]

    def to_dict(self) -> JsonObject:
        """Return the results as plain values for JSON."""
        modes: JsonObject = {name: figures.to_dict() for name, figures in self.figures.items()}
        modes |= {name: {"error": message} for name, message in self.errors.items()}
        return {**self.size.to_dict(), "modes": modes, "work_ratio": self.size.mean_length / self.size.longest}


@dataclass(frozen=True)
class BenchmarkResult:
    """Results of all workloads. `model`: model config."""

    model: Config
    machine: Machine
    workloads: list[WorkloadResult]

    def to_dict(self) -> JsonObject:
        """Return the results of all workloads as plain values for JSON."""
        workloads = {result.name: result.to_dict() for result in self.workloads}
        return {"machine": self.machine.to_dict(), "model": self.model, "workloads": workloads}


def make_workloads(config: BenchConfig, model: Config) -> Iterator[Workload]:
    """Yield the workload of the dataset in `data`, or a generated one for each length distribution in `lengths`."""
    size = (config.batch_size, config.updates, config.seed)
    if config.data is not None:
        dataset = prepare(config.data, partial(check_tree_fields, model, dataset=config.data.name))
        yield dataset_workload(dataset, *size)
        return
    if reads_trees(model):
        raise InputError("model", "reads trees, and generated sequences are none", "name data, or set model=lstm")
    for lengths in config.lengths:
        yield generate_workload(lengths, config.sequences, *size)


def run_benchmark(
    config: BenchConfig, contenders: Mapping[str, Contender], on_result: Callable[[WorkloadResult], object]
) -> BenchmarkResult:
    """Measure all contenders on all workloads. `on_result` is called with the result of each finished workload.

    `contenders`: dict mode → contender.
    """
    reference = contenders[REFERENCE]
    results = []
    for workload in make_workloads(config, reference.model):
        trainers, errors = warm_up(contenders, workload)
        if not trainers:
            raise InputError("modes", "none can run", f"{REFERENCE}: {errors[REFERENCE]}")
        timings = time_training(trainers, config.rounds, REFERENCE)
        stages = progress.track(trainers.items(), "measuring memory", total=len(trainers), unit="runs")
        figures = {name: replace(timings[name], **measure_peak(warm.trainer)._asdict()) for name, warm in stages}
        results.append(WorkloadResult(workload.name, workload.size, figures, errors))
        on_result(results[-1])
    return BenchmarkResult(reference.model, describe_machine(reference.device, reference.precision), results)
