"""Comparison of models: training steps and predictions on the same sequences, in interleaved rounds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from seqclf.bench.machine import PEAKS_TITLE, Machine, describe_machine, measure_peak
from seqclf.bench.mode_trainer import MODES, BenchmarkSettings, ModeTrainer
from seqclf.bench.timing import (
    ModeTiming,
    WarmTrainer,
    error_text,
    in_turn,
    ratios_to,
    time_trainers,
    warm_up_trainers,
)
from seqclf.bench.workload import Workload, WorkloadSize
from seqclf.bundle.sequence_reader import BatchLimits, WholeSequences, read_sequences
from seqclf.bundle.session import open_session
from seqclf.config.targets import Config
from seqclf.data.ragged import take
from seqclf.errors import InputError
from seqclf.models.onnx.export import export_onnx
from seqclf.system import progress
from seqclf.system.json_result import JsonObject, JsonResult

MODE = "dynamic"  # the default of training


@dataclass(frozen=True)
class PredictionTiming(JsonResult):
    """Figures of prediction by ONNX Runtime.

    `tokens_per_s`: without padding. `time_ratio`: time of a round over that of the first model, None if that did not
    run.
    """

    tokens_per_s: float
    time_ratio: float | None


@dataclass(frozen=True)
class ModelFigures(JsonResult):
    """Figures of one model. `weights`: number of trainable weights."""

    weights: int
    training: ModeTiming
    prediction: PredictionTiming


@dataclass(frozen=True)
class ModelComparison(WorkloadSize):
    """Figures of all models on one workload. `models` and `errors`: by model, one or the other for each."""

    models: dict[str, ModelFigures]
    errors: dict[str, str]

    def to_dict(self) -> JsonObject:
        """Return plain values, in the form of the command's last line."""
        figures = {name: figures.to_dict() for name, figures in self.models.items()}
        return {
            **self.size_dict(),
            "models": figures | {name: {"error": message} for name, message in self.errors.items()},
        }


@dataclass(frozen=True)
class ModelsResult:
    """Comparisons on all workloads. `models`: arguments of the networks; the first is the reference."""

    machine: Machine
    models: dict[str, Config]
    workloads: list[ModelComparison]

    @property
    def reference(self) -> str:
        """Name of the model that the others are compared with."""
        return next(iter(self.models))

    def to_dict(self) -> JsonObject:
        """Return plain values, with the workloads by name."""
        workloads = {result.name: result.to_dict() for result in self.workloads}
        return {"machine": asdict(self.machine), "models": self.models, "workloads": workloads}


class Predictor:
    """A model in ONNX Runtime, which predicts the sequences of all batches as `predict` does, without reading a file.

    `path`: of the exported model.
    """

    def __init__(self, trainer: ModeTrainer, path: Path):
        workload = trainer.workload
        export_onnx(trainer.model, workload.fields, path)
        session = open_session(path, "cpu" if trainer.settings.device == "cpu" else "auto")
        names = [entry.name for entry in session.get_inputs()]
        self.read = WholeSequences(session, [name for name in names if name != "lengths"])
        self.sequences = take(workload.split.sequences, np.concatenate(workload.batches))
        self.classes = len(workload.classes)
        self.limits = BatchLimits.of(session, torch.get_num_threads(), by_chunks=False)

    @property
    def tokens(self) -> int:
        """Number of tokens, without padding."""
        return int(self.sequences.lengths.sum())

    def seconds(self) -> float:
        """Predict all sequences once, and return the seconds."""
        started = time.perf_counter()
        read_sequences(self.read, self.sequences, self.classes, self.limits)
        return time.perf_counter() - started


def compare_models(
    settings: Mapping[str, BenchmarkSettings],
    workloads: Iterable[Mapping[str, Workload]],
    rounds: int,
    on_result: Callable[[ModelComparison, str], None],
) -> ModelsResult:
    """Compare models on all workloads. `settings`: by model, the reference first.

    `workloads`: for each of them, the sequences by model. `on_result`: called with each comparison when it ends, and
    the name of the reference.
    """
    reference, of_reference = next(iter(settings.items()))
    results = []
    for workload in workloads:
        result = _compare_on(workload, settings, rounds)
        if not result.models:
            raise InputError("models", "none can run", f"{reference}: {result.errors[reference]}")
        results.append(result)
        on_result(result, reference)
    machine = describe_machine(of_reference.device, of_reference.precision)
    return ModelsResult(machine, {name: entry.model for name, entry in settings.items()}, results)


def _compare_on(
    workloads: Mapping[str, Workload], settings: Mapping[str, BenchmarkSettings], rounds: int
) -> ModelComparison:
    """Time training and prediction of each model, and measure the peak memory of its training."""
    reference = next(iter(settings))
    sequences = workloads[reference]
    makers = {name: partial(ModeTrainer, MODES[MODE], workloads[name], entry) for name, entry in settings.items()}
    trainers, errors = warm_up_trainers(makers, f"{sequences.name}: warming up")
    with tempfile.TemporaryDirectory() as folder:
        predictors, failed = _export(trainers, Path(folder))
        names = list(predictors)
        training = time_trainers({name: trainers[name] for name in names}, rounds, reference)
        predicting = in_turn(names, rounds, lambda name: predictors[name].seconds(), "timing predictions in turn")
    if settings[reference].device == "cpu":  # on a GPU, time_trainers has measured the memory of the device
        for name in progress.track(names, PEAKS_TITLE, total=len(names), unit="models"):
            peak = measure_peak(workloads[name], MODE, settings[name], torch.get_num_threads())
            training[name] = replace(training[name], **asdict(peak))
    ratios = ratios_to(reference, predicting) if reference in predicting else {}
    models = {
        name: ModelFigures(
            weights=sum(weight.numel() for weight in trainers[name].trainer.model.parameters() if weight.requires_grad),
            training=training[name],
            prediction=PredictionTiming(
                tokens_per_s=predictors[name].tokens / float(np.median(predicting[name])),
                time_ratio=ratios.get(name),
            ),
        )
        for name in names
    }
    return ModelComparison(**sequences.size(), models=models, errors=errors | failed)


def _export(trainers: Mapping[str, WarmTrainer], folder: Path) -> tuple[dict[str, Predictor], dict[str, str]]:
    """Return predictors that have run once, and the error messages of models that cannot be exported."""
    predictors: dict[str, Predictor] = {}
    errors: dict[str, str] = {}
    for name, warm in progress.track(trainers.items(), "exporting to ONNX", total=len(trainers), unit="models"):
        try:
            predictor = Predictor(warm.trainer, folder / f"{len(predictors)}.onnx")
            predictor.seconds()
            predictors[name] = predictor
        except Exception as error:  # the other models still have their figures
            errors[name] = error_text(error)
    return predictors, errors
