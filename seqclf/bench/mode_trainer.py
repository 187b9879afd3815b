"""Contenders of a benchmark, and a trainer that runs single optimizer steps of a contender."""

from __future__ import annotations

import copy
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.collate import pad
from seqclf.batching.split_rows import SplitRows
from seqclf.bench.modes import MODES, Mode
from seqclf.bench.workload import Workload
from seqclf.config.targets import Config, arguments_of, locate
from seqclf.models.encoder import reads_trees
from seqclf.models.ensemble import build_classifier
from seqclf.training.checks.check_targets import resolve_for_data


class Contender(NamedTuple):
    """A model in a mode.

    `model`: model config with `_target_` and without `layout`.
    """

    model: Config
    learning_rate: float
    device: str
    precision: str
    seed: int
    mode: Mode = MODES["dynamic"]


def has_layouts(model: Config) -> bool:
    """Return True if the encoder of a model config accepts the argument `layout`. Recurrent encoders accept `layout`.

    >>> has_layouts({"encoder": {"_target_": "seqclf.models.transformer.Transformer"}})
    False
    """
    if "encoder" not in model:  # a network of heads
        return False
    return arguments_of(locate(model["encoder"]["_target_"], "model.encoder._target_")).accepts("layout")


def unavailable_modes(model: Config) -> dict[str, str]:
    """Return the modes that a model cannot run in, as a dict mode → reason."""
    reasons = {}
    if not has_layouts(model):
        reasons["packed"] = "it is a layout of recurrent layers, which this model does not have"
    if reads_trees(model):
        reasons["compiled"] = "the levels of trees have no fixed shapes"
    return reasons


class ModeTrainer:
    """Runs single optimizer steps of a contender.

    All modes of a model start from the same initial weights, and `reset` restores these weights.
    """

    def __init__(self, contender: Contender, workload: Workload):
        self.contender = contender
        self.mode = mode = contender.mode
        self.workload = workload
        self.pad_to = workload.max_length if mode.static else None  # pad all batches to this length
        torch.manual_seed(contender.seed)
        model = {**contender.model, "layout": mode.layout} if has_layouts(contender.model) else contender.model
        model, _ = resolve_for_data(model, workload.description)
        self.model = build_classifier(model, workload.fields, len(workload.classes)).to(contender.device)
        # What does not change in training is computed before it, and not timed.
        rows = SplitRows(workload.split, workload.name, np.ones(len(workload.classes)), contender.device)
        self.model.fit_to(rows)
        self.frozen_outputs = self.model.frozen_outputs(rows)
        # Copy the weights, because state_dict() returns references to the weights, and training changes the weights in
        # place.
        self.initial_state = copy.deepcopy(self.model.state_dict())
        if mode.compiled:
            # Compile for fixed shapes (dynamic=False), because the mode `compiled` stands for static graphs.
            self.model.compile(dynamic=False)
        self.reset()

    def reset(self) -> None:
        """Restore the initial weights and create a new optimizer."""
        self.model.load_state_dict(self.initial_state)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.contender.learning_rate)
        self.scaler = torch.amp.GradScaler(self.contender.device, enabled=self.contender.precision == "16-mixed")

    def collate(self, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor, np.ndarray | None, Tensor]:
        """Return the fields, lengths, host lengths and labels of a batch.

        `rows`: row numbers of the batch. The host lengths are a copy of the lengths on the CPU, which only the packed
        layout needs. Without the packed layout, the host lengths are `None`.
        """
        device = self.contender.device
        fields, lengths = pad(self.workload.split.sequences, rows, self.pad_to)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in fields.items()}
        labels = torch.from_numpy(self.workload.split.labels[rows]).to(device)
        if self.frozen_outputs is not None and self.model.training:
            outputs = self.frozen_outputs.batch(rows, next(iter(tensors.values())).shape[1])
            tensors |= {name: values.to(device) for name, values in outputs.items()}
        host_lengths = lengths if self.mode.layout == "packed" else None
        return tensors, torch.from_numpy(lengths).to(device), host_lengths, labels

    def step(self, rows: np.ndarray) -> float:
        """Run one optimizer step on the batch `rows`, and return the elapsed seconds.

        The time includes the collation of the batch.
        """
        started = time.perf_counter()
        self.optimizer.zero_grad()
        with self._autocast():
            loss = self.model.training_loss(*self.collate(rows), nn.functional.cross_entropy).total
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.contender.device == "cuda":
            torch.cuda.synchronize()  # without it, the time would only include the launch of the kernels
        return time.perf_counter() - started

    def round(self) -> list[float]:
        """Reset the weights, run one optimizer step for every batch, and return the seconds of each step."""
        self.reset()
        return [self.step(rows) for rows in self.workload.batches]

    @torch.no_grad()
    def evaluate(self) -> float:
        """Return the loss on the training batches."""
        self.model.eval()
        outputs = []
        for rows in self.workload.batches:
            *inputs, labels = self.collate(rows)
            with self._autocast():
                # Call the method `forward`, which is not compiled. Calling the model itself would compile the model
                # again for evaluation mode.
                outputs.append((self.model.forward(*inputs).float(), labels))
        self.model.train()
        logits, labels = map(torch.cat, zip(*outputs, strict=True))
        return float(nn.functional.cross_entropy(logits, labels))

    def padding_efficiency(self) -> float:
        """Return the number of tokens without padding divided by the number of tokens with padding."""
        lengths, longest = self.workload.split.sequences.lengths, self.workload.max_length
        batches = self.workload.batches
        computed = sum(len(rows) * (longest if self.mode.static else lengths[rows].max()) for rows in batches)
        return float(self.workload.tokens / computed)

    def _autocast(self) -> torch.autocast:
        precision = self.contender.precision
        dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
        return torch.autocast(self.contender.device, dtype, enabled=precision != "32-true")
