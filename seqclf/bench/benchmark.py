"""Benchmark that measures each contender (a model in a mode) on each workload.

If the benchmark compares the modes of one model, it also rates the mode `dynamic` against the mode `static` (see
`MODES`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from seqclf.bench.machine import Machine, MemoryGrowth, describe_machine, measure_growth, measure_peak
from seqclf.bench.mode_trainer import MODES, Comparison, Contender, ModeTrainer, has_layouts
from seqclf.bench.options import BenchConfig
from seqclf.bench.timing import PredictionTiming, TrainingTiming, time_prediction, time_training, warm_up
from seqclf.bench.workload import Workload, WorkloadSize, dataset_workload, generate_workload
from seqclf.config.targets import Config, arguments_of, locate
from seqclf.data.prepare import accept_fields, prepare
from seqclf.errors import InputError
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import build_encoder, reads_trees
from seqclf.models.options import POOLINGS
from seqclf.models.pooling import Pooling
from seqclf.models.recurrent import CELLS
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


# Structure changes: between two optimizer steps, the model gets another recurrent cell, number of layers, direction or
# pooling.

RECURRENT = {"_target_": "seqclf.models.recurrent.Recurrent"}
NO_DROPOUT = {"dropout": 0.0, "variational": False}
LAYERS = (1, 2, 3)
OF_CLASSIFIER = arguments_of(SequenceClassifier).names


@dataclass(frozen=True)
class StructureChanges(JsonResult):
    """Result of changing the structure of a model between optimizer steps.

    `changes`: number of structures that were tried. `errors`: one message for each problem.
    """

    changes: int
    errors: list[str]


def train_changing_structures(workload: Workload, contender: Contender) -> StructureChanges:
    """Train the model with every structure for one optimizer step.

    The encoder and the pooling are new in each step. The embedding and the output layer stay the same.
    """
    trainer = ModeTrainer(contender, workload)
    size = trainer.model.encoder.size
    encoder = RECURRENT if has_layouts(contender.model) else contender.model["encoder"]
    structures = list(itertools.product(POOLINGS, _encoder_arguments(contender.model, size)))
    errors = []
    changes = progress.track(structures, "changing the structure", total=len(structures), unit="steps")
    for (pooling, arguments), rows in zip(changes, itertools.cycle(workload.batches), strict=False):
        model = trainer.model
        model.encoder = build_encoder(encoder, model.embedding.size, arguments, NO_DROPOUT)
        model.pooling = Pooling(pooling, size, model.encoder.backward_size)
        model.to(contender.device)
        trainer.mode = MODES["packed" if arguments.get("layout") == "packed" else "dynamic"]
        # The previous optimizer holds weights of the replaced encoder, so create a new optimizer.
        trainer.optimizer = torch.optim.AdamW(model.parameters(), lr=contender.learning_rate)
        name = ", ".join([pooling, *(f"{key}={value}" for key, value in arguments.items())])
        errors += [f"{name}: {problem}"[:200] for problem in _train_one_step(trainer, rows)]
    return StructureChanges(len(structures), errors)


def _encoder_arguments(model: Config, size: int) -> Iterator[Config]:
    """Yield constructor arguments, one dict for each encoder structure. All encoders have `size` output channels.

    If the model config `model` is unidirectional, all encoders are unidirectional.
    """
    if has_layouts(model):
        both = model["bidirectional"] and size % 2 == 0  # each direction gets half of the channels
        directions = (False, True) if both else (False,)
        for cell, layers, bidirectional, layout in itertools.product(CELLS, LAYERS, directions, ("padded", "packed")):
            sizes = {"hidden_size": size // 2 if bidirectional else size, "layers": layers}
            yield {"cell": cell, **sizes, "bidirectional": bidirectional, "layout": layout}
        return
    of_network = {"_target_", "members", *OF_CLASSIFIER, *arguments_of(locate(model["_target_"])).names}
    arguments = {name: value for name, value in model.items() if name not in of_network}
    for changed in [{"layers": layers} for layers in LAYERS] if "layers" in arguments else [{}]:
        yield {**arguments, **changed}


def _train_one_step(trainer: ModeTrainer, rows: np.ndarray) -> Iterator[str]:
    """Run one optimizer step, and yield a message for each problem in the step."""
    model: Any = trainer.model
    output_before = model.output.weight.detach().clone()
    try:
        trainer.step(rows)
    except Exception as error:  # go on with the next structure after an error
        yield str(error)
        return
    gradients = [weight.grad for weight in model.encoder.parameters()]
    if any(gradient is None or not bool(torch.isfinite(gradient).all()) for gradient in gradients):
        yield "weights without a gradient"
    if torch.equal(output_before, model.output.weight.detach()):
        yield "nothing was learned"


# Rating of the mode `dynamic`, compared with the mode `static`: good, acceptable or bad.

# Each limit is the time (or memory) of the mode `dynamic` divided by the time (or memory) of the mode `static`. The
# words good, acceptable and bad are taken from the literature.
GOOD_TIME_RATIO, BAD_TIME_RATIO = 1.15, 1.30
BAD_MEMORY_RATIO = 1.10


@dataclass(frozen=True)
class Rating(JsonResult):
    """Rating of the mode `dynamic` on a workload.

    `word`: "good", "acceptable", "bad" or "none". `reason`: text with the measurements that lead to the rating.
    """

    word: str
    reason: str


def rate_dynamic(figures: Mapping[str, Figures], growth: MemoryGrowth, structure: StructureChanges) -> Rating:
    """Rate the mode `dynamic` on a workload.

    The rating is "none" if the model did not run in the mode `dynamic` or in the mode `static`.
    """
    dynamic, static = figures.get("dynamic"), figures.get("static")
    if dynamic is None or static is None or dynamic.training.time_ratio is None:
        return Rating("none", "dynamic or static did not run")
    ratio, before, after = dynamic.training.time_ratio, static.training.memory_mb, dynamic.training.memory_mb
    memory_ratio = after / before if after and before else None
    reason = f"{speed_text(ratio)} as static"
    if memory_ratio is not None:
        reason += f", with {memory_ratio:.2f} times its memory"
    if structure.errors:
        return Rating("bad", f"{reason}; an error when structure changes: {structure.errors[0]}")
    if growth.leaks:
        return Rating("bad", f"{reason}; memory grows by {growth.mb_per_1000_steps:.1f} MB per 1000 steps")
    if ratio >= BAD_TIME_RATIO or (memory_ratio is not None and memory_ratio > BAD_MEMORY_RATIO):
        return Rating("bad", reason)
    return Rating("good" if ratio <= GOOD_TIME_RATIO else "acceptable", reason)


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
class DynamicChecks(JsonResult):
    """Results of the checks of the mode `dynamic`. Other modes are not checked.

    `leak`: growth of memory over many steps. `structure`: result of changing the structure. `verdict`: rating that
    follows from the checks and the measurements.
    """

    leak: MemoryGrowth
    structure: StructureChanges
    verdict: Rating


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload.

    `figures`: dict contender → measurements. `errors`: dict contender → error message. Each contender is in exactly one
    of the two dicts. `checks`: checks of the mode `dynamic`, or `None` in a comparison of models.
    """

    name: str
    size: WorkloadSize
    figures: dict[str, Figures]
    errors: dict[str, str]
    checks: DynamicChecks | None = None

    def to_dict(self) -> JsonObject:
        """Return the results as plain values for JSON."""
        contenders = {name: figures.to_dict() for name, figures in self.figures.items()}
        contenders |= {name: {"error": message} for name, message in self.errors.items()}
        if self.checks is None:
            return {**self.size.to_dict(), "models": contenders}
        work_ratio = self.size.mean_length / self.size.longest
        return {**self.size.to_dict(), "modes": contenders, **self.checks.to_dict(), "work_ratio": work_ratio}


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
        checks = None
        if comparison.kind == "modes":
            # Check for leaks only in the mode `dynamic`, because its batch shapes change with every step. A cache with
            # one entry per shape would then grow with every step.
            dynamic = comparison.contenders["dynamic"]
            growth = measure_growth(ModeTrainer(dynamic, workload), config.leak_steps)
            structure = train_changing_structures(workload, dynamic)
            checks = DynamicChecks(growth, structure, rate_dynamic(figures, growth, structure))
        results.append(WorkloadResult(workload.name, workload.size, figures, errors, checks))
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
