"""Structure changes between steps: cell, depth, directions and pooling of one model, while it trains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqclf.benchmark.mode_trainer import ModeTrainer
from seqclf.benchmark.modes import MODES, BenchmarkSettings
from seqclf.benchmark.workload import Workload
from seqclf.models.pooling import POOLINGS, Pooling
from seqclf.models.recurrent import CELLS, LAYOUTS, Recurrent
from seqclf.system import progress


@dataclass(frozen=True)
class StructureChanges:
    """Number of `changes` made, and the `errors` they caused."""

    changes: int
    errors: list[str]


def train_changing_structures(workload: Workload, settings: BenchmarkSettings) -> StructureChanges:
    """Run one step of every structure in turn. The embedding and the output layer train through all of them."""
    trainer = ModeTrainer(MODES["dynamic"], workload, settings)
    size = trainer.model.encoder.size
    directions = (False,) if size % 2 else (False, True)  # each direction has half of the size
    structures = list(itertools.product(CELLS, (1, 2, 3), directions, POOLINGS, LAYOUTS[1:]))
    errors = []
    changes = progress.track(structures, "changing the structure", total=len(structures), unit="steps")
    for index, (cell, layers, bidirectional, pooling, layout) in enumerate(changes):
        hidden = size // 2 if bidirectional else size
        model = trainer.model
        model.encoder = Recurrent(
            model.embedding.size,
            cell=cell,
            hidden_size=hidden,
            layers=layers,
            bidirectional=bidirectional,
            layout=layout,
            dropout=0.0,
            variational=False,
        )
        model.pooling = Pooling(pooling, size, model.encoder.backward_size)
        model.to(settings.device)
        trainer.mode = MODES["packed" if layout == "packed" else "dynamic"]
        # The former optimizer refers to weights that are no longer part of the model.
        trainer.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
        name = f"{cell}, {layers} layers, {pooling}, {layout}"
        problems = _train_one_step(trainer, workload.batches[index % len(workload.batches)])
        errors += [f"{name}: {problem}"[:200] for problem in problems]
    return StructureChanges(len(structures), errors)


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
