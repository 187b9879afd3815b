"""Time measurements in rounds. In each round, the contenders take turns and do the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqclf.bench.mode_trainer import Contender, ModeTrainer
from seqclf.bench.workload import Workload
from seqclf.errors import InputError, first_line
from seqclf.system import progress
from seqclf.system.json_result import JsonResult

REFERENCE = "static"  # mode that the others are compared with


@dataclass(frozen=True)
class ModeFigures(JsonResult):
    """Measurements of training in one mode.

    `tokens_per_s`: tokens per second, without padding. `step_ms`: median milliseconds of a step. `first_step_s`:
    seconds of the first step minus the median seconds of the next steps. `padding_efficiency`: fraction of the computed
    tokens that are not padding. `loss`: loss after one round of training. `time_ratio`: median over the rounds of the
    seconds of a round divided by the seconds of the reference mode, or `None` if the reference mode did not run.
    `memory_mb`: see `training_peak_mb`; `None` if it was not measured.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"time_ratio", "memory_mb"})

    tokens_per_s: float
    step_ms: float
    first_step_s: float
    padding_efficiency: float
    loss: float
    time_ratio: float | None = None
    memory_mb: float | None = None


def time_modes(
    contenders: Mapping[str, Contender], workload: Workload, rounds: int
) -> tuple[dict[str, ModeFigures], dict[str, str]]:
    """Return a dict mode → measurements, and a dict mode → error message for contenders that cannot run.

    `contenders`: dict mode → contender. In each round, a contender starts from its initial weights and runs one
    optimizer step for every batch. The order of the contenders rotates from round to round, so that a slowdown of the
    machine spreads equally over them. A first round of each contender is not timed, because it compiles the model.
    """
    trainers: dict[str, ModeTrainer] = {}
    first_rounds: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    torch._dynamo.reset()  # compiled graphs of an earlier workload count towards the limit of recompilations
    for mode in progress.track(contenders, "warming up and compiling", total=len(contenders), unit="runs"):
        try:
            trainer = ModeTrainer(contenders[mode], workload)
            first_rounds[mode] = trainer.round()
            trainers[mode] = trainer
        except Exception as error:  # such as a missing compiler; go on with the other contenders
            text = first_line(error)
            errors[mode] = text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:200]
    seconds: dict[str, list[list[float]]] = {mode: [] for mode in trainers}
    order = list(trainers)
    with progress.stage("timing the steps in turn", total=rounds * len(order), unit="runs") as timing:
        for _ in range(rounds):
            for mode in order:
                seconds[mode].append(trainers[mode].round())
                timing.advance()
            order = order[1:] + order[:1]
    reference = np.sum(seconds[REFERENCE], axis=1) if REFERENCE in seconds else None
    figures = {
        mode: _figures(trainer, first_rounds[mode], np.array(seconds[mode]), reference)
        for mode, trainer in trainers.items()
    }
    return figures, errors


def _figures(
    trainer: ModeTrainer, first_round: list[float], seconds: np.ndarray, reference: np.ndarray | None
) -> ModeFigures:
    """Return the measurements of a mode.

    `first_round`: seconds of each step of the first round. `seconds`: (rounds, steps) seconds of the timed steps.
    `reference`: (rounds,) seconds of the reference mode.
    """
    by_round = seconds.sum(axis=1)
    # Medians are used, so that a single slow step does not change the result.
    return ModeFigures(
        tokens_per_s=trainer.workload.tokens / float(np.median(by_round)),
        step_ms=1e3 * float(np.median(seconds)),
        first_step_s=first_round[0] - (float(np.median(first_round[1:])) if len(first_round) > 1 else 0.0),
        padding_efficiency=trainer.padding_efficiency(),
        loss=trainer.evaluate(),
        time_ratio=None if reference is None else float(np.median(by_round / reference)),
    )
