"""Training of one mode on a workload, step by step."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.collate import pad
from seqclf.bench.workload import Workload
from seqclf.config.targets import Config, arguments_of, locate
from seqclf.evaluation.metrics import confusion_metrics
from seqclf.models.encoder import reads_trees
from seqclf.models.ensemble import build_classifier
from seqclf.models.network import as_network

# Modes: layouts and paddings of the same batches that the benchmark compares.


class Mode(NamedTuple):
    """A way to run the same batches.

    `layout`: that of recurrent layers. Other encoders are padded. `static`: every batch is padded to the longest
    sequence of the workload, instead of to its own longest. `compiled`: by torch.compile with fixed shapes.
    """

    name: str
    layout: str
    static: bool
    compiled: bool = False


MODES = {
    mode.name: mode
    for mode in (
        Mode("dynamic", "padded", static=False),  # the default of training
        Mode("packed", "packed", static=False),  # PyTorch's answer to unequal lengths
        Mode("static", "padded", static=True),  # the reference of all ratios
        Mode("compiled", "padded", static=True, compiled=True),  # static graphs at their best
    )
}


class BenchmarkSettings(NamedTuple):
    """Settings that all modes share. `model`: `_target_` dict of the network, without `layout`."""

    model: Config
    learning_rate: float
    device: str
    precision: str
    seed: int


def has_layouts(model: Config) -> bool:
    """Return True if the encoder of a model takes a layout, as recurrent ones do.

    >>> has_layouts({"encoder": {"_target_": "seqclf.models.transformer.Transformer"}})
    False
    """
    return arguments_of(locate(model["encoder"]["_target_"], "model.encoder._target_")).accepts("layout")


LEFT_OUT = {  # why a mode may be missing
    "packed": "it is a layout of recurrent layers, which this model does not have",
    "compiled": "the levels of trees have no fixed shapes",
}


def modes_of(model: Config, names: Iterable[str]) -> list[str]:
    """Return the names of the modes in which a model can run.

    Packed ones need layouts. Compiled ones need shapes that follow from those of the batch; the levels of trees do not.
    """
    modes = [MODES[name] for name in names]
    if not has_layouts(model):
        modes = [mode for mode in modes if mode.layout != "packed"]
    return [mode.name for mode in modes if not (mode.compiled and reads_trees(model))]


class ModeTrainer:
    """A model and its optimizer in one mode. All modes start from the same weights, which `reset` restores."""

    def __init__(self, mode: Mode, workload: Workload, settings: BenchmarkSettings):
        self.mode = mode
        self.workload = workload
        self.settings = settings
        self.pad_to = np.array([workload.max_length]) if mode.static else None  # one bucket boundary for all batches
        torch.manual_seed(settings.seed)
        model = {**settings.model, "layout": mode.layout} if has_layouts(settings.model) else settings.model
        self.model = build_classifier(model, workload.fields, len(workload.classes)).to(settings.device)
        # state_dict() refers to the weights that training will change.
        self.initial_state = copy.deepcopy(self.model.state_dict())
        if mode.compiled:
            # Fixed shapes, as compiled code for any shape would be no static graph.
            self.model.compile(dynamic=False)
        self.reset()

    def reset(self) -> None:
        """Restore the initial weights and start a new optimizer."""
        self.model.load_state_dict(self.initial_state)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.settings.learning_rate)
        self.scaler = torch.amp.GradScaler(self.settings.device, enabled=self.settings.precision == "16-mixed")

    def collate(self, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor, np.ndarray | None, Tensor]:
        """Return fields, lengths, lengths on the host and labels of a batch of rows.

        Only packing reads lengths on the host. They are None in other modes.
        """
        device = self.settings.device
        fields, lengths = pad(self.workload.split.sequences, rows, self.pad_to)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in fields.items()}
        labels = torch.from_numpy(self.workload.split.labels[rows]).to(device)
        host_lengths = lengths if self.mode.layout == "packed" else None
        return tensors, torch.from_numpy(lengths).to(device), host_lengths, labels

    def loss(self, rows: np.ndarray) -> Tensor:
        """Return what training minimises on a batch."""
        with self._autocast():
            return as_network(self.model).training_loss(*self.collate(rows), nn.functional.cross_entropy).total

    def step(self, rows: np.ndarray) -> float:
        """Run one optimizer step, from collating the rows to new weights, and return its seconds."""
        started = time.perf_counter()
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss(rows)).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._synchronize()
        return time.perf_counter() - started

    def forward_seconds(self, rows: np.ndarray, build_graph: bool) -> float:
        """Return the seconds of a forward pass, with or without building the autograd graph."""
        with nullcontext() if build_graph else torch.no_grad():
            started = time.perf_counter()
            self.loss(rows)
            self._synchronize()
            return time.perf_counter() - started

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Return the loss and the macro recall on the batches that were trained on."""
        self.model.eval()
        num_classes = len(self.workload.classes)
        confusion = np.zeros((num_classes, num_classes), np.int64)
        losses = []
        for rows in self.workload.batches:
            fields, lengths, host_lengths, labels = self.collate(rows)
            with self._autocast():
                # Not the compiled call, which would be compiled again for eval mode.
                logits = self.model.forward(fields, lengths, host_lengths).float()
            losses.append(float(nn.functional.cross_entropy(logits, labels)))
            cells = (labels * num_classes + logits.argmax(dim=-1)).cpu().numpy()
            confusion += np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)
        self.model.train()
        return float(np.mean(losses)), confusion_metrics(confusion, self.workload.classes).recall

    def padding_efficiency(self) -> float:
        """Return tokens over computed tokens, padding included."""
        lengths, batches = self.workload.split.sequences.lengths, self.workload.batches
        widths = [self.workload.max_length if self.mode.static else lengths[rows].max() for rows in batches]
        computed_tokens = sum(len(rows) * width for rows, width in zip(batches, widths, strict=True))
        return float(lengths[np.concatenate(batches)].sum() / computed_tokens)

    def _autocast(self) -> Any:
        if self.settings.precision == "32-true":
            return nullcontext()
        dtype = torch.bfloat16 if self.settings.precision == "bf16-mixed" else torch.float16
        return torch.autocast(self.settings.device, dtype)

    def _synchronize(self) -> None:
        # Kernels run asynchronously: without waiting, the clock would stop at their launch.
        if self.settings.device == "cuda":
            torch.cuda.synchronize()
