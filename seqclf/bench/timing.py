"""Time measurements in rounds. In each round, the contenders take turns and do the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from seqclf.bench.mode_trainer import Contender, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.errors import InputError, first_line
from seqclf.system import progress
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class TrainingTiming(JsonResult):
    """Measurements of training.

    `first_step_s`: seconds of the first step minus the median seconds of the next steps. `compiled_graphs`: number of
    graphs that `torch.compile` compiled. `tokens_per_s`: tokens per second, without padding. `step_ms`, `step_ms_mean`,
    `step_ms_p95`: median, mean and 95th percentile of the milliseconds of a step. `padding_efficiency`: fraction of the
    computed tokens that are not padding. `loss`, `recall`: loss and macro recall after one round of training.
    `time_ratio`: seconds of a round divided by the reference contender's seconds, or `None` if the reference did not
    run. `memory_mb`, `step_memory_mb`: see `PeakMemory`.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"time_ratio", "memory_mb", "step_memory_mb"})

    first_step_s: float
    compiled_graphs: int
    tokens_per_s: float
    step_ms: float
    step_ms_mean: float
    step_ms_p95: float
    padding_efficiency: float
    loss: float
    recall: float
    time_ratio: float | None = None
    memory_mb: float | None = None
    step_memory_mb: float | None = None


class WarmTrainer:
    """A trainer that has already run one round of optimizer steps, so that the model is compiled.

    `first_step_s`, `compiled_graphs`: see `TrainingTiming`.
    """

    def __init__(self, contender: Contender, workload: Workload):
        # Reset the compiler, so that compiled graphs of earlier contenders are neither reused nor counted.
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        self.trainer = ModeTrainer(contender, workload)
        seconds = self.trainer.round()
        self.first_step_s = seconds[0] - (float(np.median(seconds[1:])) if len(seconds) > 1 else 0.0)
        self.compiled_graphs = int(torch._dynamo.utils.counters["stats"].get("unique_graphs", 0))


def warm_up(contenders: Mapping[str, Contender], workload: Workload) -> tuple[dict[str, WarmTrainer], dict[str, str]]:
    """Run one round of optimizer steps for each contender.

    Returns a dict name → trainer, and a dict name → error message for contenders that cannot run.

    `predict`: True to also export each model to ONNX.
    """
    trainers: dict[str, WarmTrainer] = {}
    errors: dict[str, str] = {}
    for name in progress.track(contenders, "warming up and compiling", total=len(contenders), unit="runs"):
        # All trainers stay in memory until the last round, because the contenders take turns in every round.
        try:
            trainers[name] = WarmTrainer(contenders[name], workload)
        except Exception as error:  # such as a missing compiler; go on with the other contenders
            text = first_line(error)
            errors[name] = text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:200]
    return trainers, errors


def time_training(trainers: Mapping[str, WarmTrainer], rounds: int, reference: str) -> dict[str, TrainingTiming]:
    """Return a dict name → measurements of training.

    In each round, a trainer starts from its initial weights and runs one optimizer step for every batch.
    """
    seconds = in_turn(trainers, rounds, lambda name: trainers[name].trainer.round(), "timing the steps in turn")
    ratios = ratios_to(reference, {name: steps.sum(axis=1) for name, steps in seconds.items()})
    measured = progress.track(trainers.items(), "measuring losses", total=len(trainers), unit="runs")
    return {name: _training_timing(warm, seconds[name], ratios.get(name)) for name, warm in measured}


def in_turn(names: Iterable[str], rounds: int, run: Callable[[str], Any], title: str) -> dict[str, np.ndarray]:
    """Call `run(name)` once for each name in each round, and return a dict name → results (rounds, …).

    The order of the names rotates from round to round. If the machine slows down over time, the rotation spreads the
    slowdown equally over all names.

    >>> in_turn(["a", "b"], 2, str.upper, "shouting")["b"].tolist()
    ['B', 'B']
    """
    results: dict[str, list[Any]] = {name: [] for name in names}
    order = list(results)
    with progress.stage(title, total=rounds * len(order), unit="runs") as timing:
        for _ in range(rounds):
            for name in order:
                results[name].append(run(name))
                timing.advance()
            order = order[1:] + order[:1]
    return {name: np.array(values) for name, values in results.items()}


def ratios_to(reference: str, round_seconds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return a dict name → median time ratio to the reference.

    In each round, the time ratio is the seconds of a name divided by the seconds of the reference.

    >>> ratios_to("a", {"a": np.array([1.0, 2.0, 1.0]), "b": np.array([2.0, 4.0, 9.0])})
    {'a': 1.0, 'b': 2.0}
    """
    if reference not in round_seconds:
        return {}
    return {name: float(np.median(seconds / round_seconds[reference])) for name, seconds in round_seconds.items()}


def _training_timing(warm: WarmTrainer, seconds: np.ndarray, time_ratio: float | None) -> TrainingTiming:
    """Return the measurements of training. `seconds`: (rounds, steps) seconds of each optimizer step."""
    trainer = warm.trainer
    loss, recall = trainer.evaluate()
    # Medians are used, so that a single slow step does not change the result.
    return TrainingTiming(
        first_step_s=warm.first_step_s,
        compiled_graphs=warm.compiled_graphs,
        tokens_per_s=trainer.workload.tokens / float(np.median(seconds.sum(axis=1))),
        step_ms=1e3 * float(np.median(seconds)),
        step_ms_mean=1e3 * float(np.median(seconds.mean(axis=1))),
        step_ms_p95=1e3 * float(np.percentile(seconds, 95)),
        padding_efficiency=trainer.padding_efficiency(),
        loss=loss,
        recall=recall,
        time_ratio=time_ratio,
    )
