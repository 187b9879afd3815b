"""Benchmark that measures one model in several modes on each workload."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from seqclf.bench.memory import training_peak_mb
from seqclf.bench.mode_trainer import Contender
from seqclf.bench.options import BenchConfig
from seqclf.bench.timing import REFERENCE, ModeFigures, time_modes
from seqclf.bench.workload import Workload, dataset_workload, generate_workload
from seqclf.config.targets import Config
from seqclf.data.prepare import prepare
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees
from seqclf.runs.tree_fields import check_tree_fields
from seqclf.system import progress
from seqclf.system.json_result import JsonObject
from seqclf.training.checks.check_targets import data_for


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload.

    `size`: see `Workload.size`. `figures`: dict mode → measurements. `errors`: dict mode → error message. Each mode is
    in exactly one of the two dicts.
    """

    name: str
    size: JsonObject
    figures: dict[str, ModeFigures]
    errors: dict[str, str]

    def to_dict(self) -> JsonObject:
        """Return the results as plain values for JSON."""
        modes: JsonObject = {name: figures.to_dict() for name, figures in self.figures.items()}
        return {**self.size, "modes": modes | {name: {"error": message} for name, message in self.errors.items()}}


def make_workloads(config: BenchConfig, model: Config) -> Iterator[Workload]:
    """Yield the workload of the dataset in `data`, or a generated one for each length distribution in `lengths`."""
    size = (config.batch_size, config.updates, config.seed)
    if config.data is not None:
        data = data_for(config.data, model)
        dataset = prepare(data, partial(check_tree_fields, model))
        yield dataset_workload(dataset, *size)
        return
    if reads_trees(model):
        raise InputError("model", "reads trees, and generated sequences are none", "name data, or set model=lstm")
    for lengths in config.lengths:
        yield generate_workload(lengths, config.sequences, *size)


def measure_workload(contenders: Mapping[str, Contender], workload: Workload, rounds: int) -> WorkloadResult:
    """Measure time, memory and loss of all contenders. Raises InputError if none can run.

    `contenders`: dict mode → contender.
    """
    figures, errors = time_modes(contenders, workload, rounds)
    if not figures:
        raise InputError("modes", "none can run", f"{REFERENCE}: {errors[REFERENCE]}")
    modes = progress.track(figures.items(), "measuring memory", total=len(figures), unit="runs")
    figures = {name: replace(times, memory_mb=training_peak_mb(contenders[name], workload)) for name, times in modes}
    return WorkloadResult(workload.name, workload.size, figures, errors)


def machine_facts(contender: Contender) -> JsonObject:
    """Return what the figures depend on: the device and its name, cores, threads, precision and versions."""
    processor = platform.processor() or platform.machine()
    return {
        "device": contender.device,
        "name": torch.cuda.get_device_name() if contender.device == "cuda" else processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "precision": contender.precision,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
