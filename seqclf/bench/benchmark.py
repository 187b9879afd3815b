"""Benchmark that measures each contender (a model in a mode) on each workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from seqclf.bench.machine import Machine, describe_machine, measure_peak
from seqclf.bench.mode_trainer import Comparison
from seqclf.bench.options import BenchConfig
from seqclf.bench.timing import PredictionTiming, TrainingTiming, time_prediction, time_training, warm_up
from seqclf.bench.workload import Workload, WorkloadSize, dataset_workload, generate_workload
from seqclf.data.prepare import accept_fields, prepare
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees
from seqclf.runs.tree_fields import check_tree_fields
from seqclf.system import progress
from seqclf.system.json_result import JsonObject, JsonResult


@dataclass(frozen=True)
class Figures(JsonResult):
    """Measurements of one contender of a benchmark.

    `weights`: number of trainable weights. `training`: measurements of training. `prediction`: measurements of
    prediction, or `None` in a comparison of modes.
    """

    weights: int
    training: TrainingTiming
    prediction: PredictionTiming | None = None

    def to_dict(self) -> JsonObject:
        """Return the measurements as plain values for JSON.

        In a comparison of modes, the dict has only the measurements of training.
        """
        return self.training.to_dict() if self.prediction is None else super().to_dict()


def speed_text(time_ratio: float) -> str:
    """Return the text for a time ratio, such as "9.0 times as fast" for the ratio 1/9.

    >>> speed_text(0.111), speed_text(0.8), speed_text(1.001), speed_text(1.25)
    ('9.0 times as fast', '1.25 times as fast', 'as fast', '1.25 times as slow')
    """
    if 0.99 <= time_ratio <= 1.01:
        return "as fast"
    times = max(time_ratio, 1 / time_ratio)
    figure = f"{times:.0f}" if times >= 10 else f"{times:.1f}" if times >= 2 else f"{times:.2f}"
    return f"{figure} times as {'fast' if time_ratio < 1 else 'slow'}"


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload.

    `figures`: dict contender → measurements. `errors`: dict contender → error message. Each contender is in exactly one
    of the two dicts. `kind`: "modes" or "models", what the benchmark compares.
    """

    name: str
    size: WorkloadSize
    figures: dict[str, Figures]
    errors: dict[str, str]
    kind: str

    def to_dict(self) -> JsonObject:
        """Return the results as plain values for JSON."""
        contenders = {name: figures.to_dict() for name, figures in self.figures.items()}
        contenders |= {name: {"error": message} for name, message in self.errors.items()}
        result = {**self.size.to_dict(), self.kind: contenders}
        return result if self.kind == "models" else {**result, "work_ratio": self.size.mean_length / self.size.longest}


@dataclass(frozen=True)
class BenchmarkResult:
    """Results of all workloads."""

    comparison: Comparison
    machine: Machine
    workloads: list[WorkloadResult]

    def to_dict(self) -> JsonObject:
        """Return the results of all workloads as plain values for JSON."""
        models = {name: contender.model for name, contender in self.comparison.contenders.items()}
        modes = self.comparison.kind == "modes"
        return {
            "machine": self.machine.to_dict(),
            **({"model": models[self.comparison.reference]} if modes else {"models": models}),
            "workloads": {result.name: result.to_dict() for result in self.workloads},
        }


def make_workloads(config: BenchConfig, comparison: Comparison) -> Iterator[dict[str, Workload]]:
    """Yield dicts contender → workload, one dict for each round of measurements.

    If the config has a dataset in `data`, the dataset is the only workload. Otherwise there is one dict of generated
    workloads for each length distribution in `lengths`.

    A model that reads trees gets a generated workload of trees. All other models get the same workload without trees.
    """
    contenders, size = comparison.contenders, (config.batch_size, config.updates, config.seed)
    if config.data is not None:
        # A comparison of models does not check here that each model can read the data. A model that cannot read the
        # data later gets an error in the results.
        model = contenders[comparison.reference].model
        check = partial(check_tree_fields, model, dataset=config.data.name)
        dataset = prepare(config.data, check if comparison.kind == "modes" else accept_fields)
        yield dict.fromkeys(contenders, dataset_workload(dataset, *size))
        return
    trees = {name: reads_trees(contender.model) for name, contender in contenders.items()}
    for lengths in config.lengths:
        workloads = {kind: generate_workload(lengths, config.sequences, *size, kind) for kind in set(trees.values())}
        yield {name: workloads[kind] for name, kind in trees.items()}


def run_benchmark(
    config: BenchConfig, comparison: Comparison, on_result: Callable[[WorkloadResult], object]
) -> BenchmarkResult:
    """Measure all contenders on all workloads. `on_result` is called with the result of each finished workload."""
    reference = comparison.contenders[comparison.reference]
    results = []
    for by_name in make_workloads(config, comparison):
        workload = by_name[comparison.reference]
        figures, errors = _measure(comparison, by_name, config.rounds)
        if not figures:
            raise InputError(comparison.kind, "none can run", f"{comparison.reference}: {errors[comparison.reference]}")
        results.append(WorkloadResult(workload.name, workload.size, figures, errors, comparison.kind))
        on_result(results[-1])
    return BenchmarkResult(comparison, describe_machine(reference.device, reference.precision), results)


def _measure(
    comparison: Comparison, workloads: Mapping[str, Workload], rounds: int
) -> tuple[dict[str, Figures], dict[str, str]]:
    """Return a dict contender → measurements, and a dict contender → error message for contenders that cannot run."""
    trainers, errors = warm_up(comparison.contenders, workloads, predict=comparison.kind == "models")
    training = time_training(trainers, rounds, comparison.reference)
    prediction = time_prediction(trainers, rounds, comparison.reference)
    figures = {}
    for name, warm in progress.track(trainers.items(), "measuring memory", total=len(trainers), unit="runs"):
        weights = sum(weight.numel() for weight in warm.trainer.model.parameters() if weight.requires_grad)
        timing = replace(training[name], **measure_peak(warm.trainer)._asdict())
        figures[name] = Figures(weights, timing, prediction.get(name))
    return figures, errors
