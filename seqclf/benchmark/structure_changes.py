"""Structure changes between steps: cell, depth, directions and pooling of one model, while it trains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from seqclf.benchmark.mode_trainer import ModeTrainer
from seqclf.benchmark.modes import MODES, BenchmarkSettings, has_layouts
from seqclf.benchmark.workload import Workload
from seqclf.config.arguments import arguments_of
from seqclf.config.instantiate import Config, locate
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import build_encoder
from seqclf.models.pooling import POOLINGS, Pooling
from seqclf.models.recurrent import CELLS, LAYOUTS
from seqclf.system import progress

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
        CELLS, (1, 2, 3), directions, POOLINGS, LAYOUTS[1:]
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
