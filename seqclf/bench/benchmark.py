"""The benchmark: every workload is timed, its memory watched, its structure changed, and the result rated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from seqclf.bench.machine import PEAKS_TITLE, Machine, MemoryGrowth, describe_machine, measure_growth, measure_peak
from seqclf.bench.mode_trainer import MODES, BenchmarkSettings, ModeTrainer, has_layouts, modes_of
from seqclf.bench.options import BenchConfig
from seqclf.bench.timing import ModeTiming, time_modes
from seqclf.bench.workload import Workload, WorkloadSize, dataset_workload, generate_workload
from seqclf.config.targets import Config, arguments_of, locate
from seqclf.data.prepare import FieldCheck, accept_fields, prepare
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import build_encoder, reads_trees
from seqclf.models.options import POOLINGS
from seqclf.models.pooling import Pooling
from seqclf.models.recurrent import CELLS
from seqclf.system import progress
from seqclf.system.json_result import JsonObject

# Structure changes between steps: cell, depth, directions and pooling of one model, while it trains.

RECURRENT = {"_target_": "seqclf.models.recurrent.Recurrent"}
NO_DROPOUT = {"dropout": 0.0, "variational": False}
OF_CLASSIFIER = arguments_of(SequenceClassifier).names


@dataclass(frozen=True)
class StructureChanges:
    """Number of `changes` made, and the `errors` they caused."""

    changes: int
    errors: list[str]


class Structure(NamedTuple):
    """An encoder to swap in: its class, the arguments that differ from those of the benchmark, and its pooling."""

    name: str
    encoder: Config
    arguments: Config
    pooling: str


def train_changing_structures(workload: Workload, settings: BenchmarkSettings) -> StructureChanges:
    """Run one step of every structure in turn. The embedding and the output layer train through all of them."""
    trainer = ModeTrainer(MODES["dynamic"], workload, settings)
    size = trainer.model.encoder.size
    make = _recurrent_structures if has_layouts(settings.model) else _other_structures
    structures = list(make(settings.model, size))
    errors = []
    changes = progress.track(structures, "changing the structure", total=len(structures), unit="steps")
    for index, structure in enumerate(changes):
        model = trainer.model
        model.encoder = build_encoder(structure.encoder, model.embedding.size, structure.arguments, NO_DROPOUT)
        model.pooling = Pooling(structure.pooling, size, model.encoder.backward_size)
        model.to(settings.device)
        trainer.mode = MODES["packed" if structure.arguments.get("layout") == "packed" else "dynamic"]
        # The former optimizer refers to weights that are no longer part of the model.
        trainer.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
        problems = _train_one_step(trainer, workload.batches[index % len(workload.batches)])
        errors += [f"{structure.name}: {problem}"[:200] for problem in problems]
    return StructureChanges(len(structures), errors)


def _recurrent_structures(model: Config, size: int) -> Iterator[Structure]:
    """Yield recurrent encoders with outputs of `size` channels. A model of one direction keeps to it."""
    both = model["bidirectional"] and size % 2 == 0  # each direction has half of the size
    directions = (False, True) if both else (False,)
    for cell, layers, bidirectional, pooling, layout in itertools.product(
        CELLS, (1, 2, 3), directions, POOLINGS, ("padded", "packed")
    ):
        arguments = {
            "cell": cell,
            "hidden_size": size // 2 if bidirectional else size,
            "layers": layers,
            "bidirectional": bidirectional,
            "layout": layout,
        }
        yield Structure(f"{cell}, {layers} layers, {pooling}, {layout}", RECURRENT, arguments, pooling)


def _other_structures(model: Config, size: int) -> Iterator[Structure]:
    """Yield the encoder of a model with other poolings and, where it has layers, other numbers of them."""
    of_network = {"_target_", "members", *OF_CLASSIFIER, *arguments_of(locate(model["_target_"])).names}
    arguments = {name: value for name, value in model.items() if name not in of_network}
    for layers, pooling in itertools.product((1, 2, 3) if "layers" in arguments else (None,), POOLINGS):
        changed = {} if layers is None else {"layers": layers}
        name = f"{layers} layers, {pooling}" if layers else pooling
        yield Structure(name, model["encoder"], {**arguments, **changed}, pooling)


def _train_one_step(trainer: ModeTrainer, rows: np.ndarray) -> Iterator[str]:
    """Run a step and yield everything that is wrong with it."""
    model: Any = trainer.model
    output_before = model.output.weight.detach().clone()
    try:
        trainer.step(rows)
    except Exception as error:  # one structure that fails must not hide the others
        yield str(error)
        return
    gradients = [weight.grad for weight in model.encoder.parameters()]
    if any(gradient is None or not bool(torch.isfinite(gradient).all()) for gradient in gradients):
        yield "weights without a gradient"
    if torch.equal(output_before, model.output.weight.detach()):
        yield "nothing was learned"


# Rating of dynamic graphs against static ones: good, acceptable or bad.

# Limits as ratios to static, in the terms of the literature on dynamic graphs.
GOOD_TIME_RATIO, BAD_TIME_RATIO = 1.15, 1.30
BAD_MEMORY_RATIO = 1.10


@dataclass(frozen=True)
class Rating:
    """`word`: good, acceptable, bad or none. `reason`: the figures behind it."""

    word: str
    reason: str


def rate_dynamic(timings: Mapping[str, ModeTiming], growth: MemoryGrowth, structure: StructureChanges) -> Rating:
    """Rate the dynamic mode of a workload. The rating is "none" unless the dynamic and the static mode ran."""
    dynamic, static = timings.get("dynamic"), timings.get("static")
    if dynamic is None or static is None or dynamic.time_ratio is None:
        return Rating("none", "dynamic or static did not run")
    memory_ratio = dynamic.memory_mb / static.memory_mb if dynamic.memory_mb and static.memory_mb else None
    reason = f"{speed_text(dynamic.time_ratio)} as static"
    if memory_ratio is not None:
        reason += f", with {memory_ratio:.2f} times its memory"
    if structure.errors:
        return Rating("bad", f"{reason}; an error when structure changes: {structure.errors[0]}")
    if growth.leaks:
        return Rating("bad", f"{reason}; memory grows by {growth.mb_per_1000_steps:.1f} MB per 1000 steps")
    return Rating(rating_word(dynamic.time_ratio, memory_ratio), reason)


def speed_text(time_ratio: float) -> str:
    """Say in words what a ratio of times means: a mode that needs a ninth of the time is 9 times as fast.

    >>> speed_text(0.111), speed_text(0.8), speed_text(1.001), speed_text(1.25)
    ('9.0 times as fast', '1.25 times as fast', 'as fast', '1.25 times as slow')
    """
    if 0.99 <= time_ratio <= 1.01:
        return "as fast"
    times = max(time_ratio, 1 / time_ratio)
    figure = f"{times:.0f}" if times >= 10 else f"{times:.1f}" if times >= 2 else f"{times:.2f}"
    return f"{figure} times as {'fast' if time_ratio < 1 else 'slow'}"


def rating_word(time_ratio: float, memory_ratio: float | None = None) -> str:
    """Rate the ratios of dynamic to static: iteration time, and memory where it is known.

    >>> rating_word(0.9), rating_word(1.2), rating_word(1.4)
    ('good', 'acceptable', 'bad')
    >>> rating_word(0.9, memory_ratio=1.2)
    'bad'
    """
    if time_ratio >= BAD_TIME_RATIO or (memory_ratio is not None and memory_ratio > BAD_MEMORY_RATIO):
        return "bad"
    return "good" if time_ratio <= GOOD_TIME_RATIO else "acceptable"


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
    config: BenchConfig, models: Mapping[str, Config], check: FieldCheck = accept_fields
) -> Iterator[dict[str, Workload]]:
    """Yield the workload of `data`, or without it one for each of `lengths`, by model.

    Generated sequences are nodes of trees for models that read trees, and the same for all others. `check`: of the
    fields of `data`, see `prepare`.
    """
    size = (config.batch_size, config.updates, config.seed)
    if config.data is not None:
        dataset = prepare(config.data, check)
        yield dict.fromkeys(models, dataset_workload(dataset, *size))
        return
    trees = {name: reads_trees(model) for name, model in models.items()}
    for lengths in config.lengths:
        workloads = {kind: generate_workload(lengths, config.sequences, *size, kind) for kind in set(trees.values())}
        yield {name: workloads[kind] for name, kind in trees.items()}


def run_benchmark(
    config: BenchConfig,
    settings: BenchmarkSettings,
    workloads: Iterable[Workload],
    on_result: Callable[[WorkloadResult], None],
) -> BenchmarkResult:
    """Run all workloads. `on_result` is called with the result of each one when it ends."""
    results = []
    modes = modes_of(settings.model, config.modes)
    for workload in workloads:
        result = run_workload(workload, settings, modes, config.rounds, config.leak_steps)
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
