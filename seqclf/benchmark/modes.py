"""Ways of running the same updates: padded to each batch's longest, packed, or padded to the longest of all."""

from __future__ import annotations

import copy
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.collate import pad
from seqclf.benchmark.workload import Workload
from seqclf.evaluation.metrics import confusion_metrics
from seqclf.models.classifier import SequenceClassifier


class Mode(NamedTuple):
    """`static`: every batch as long as the longest sequence of all."""

    name: str
    layout: str
    static: bool
    compiled: bool = False


MODES = {
    mode.name: mode
    for mode in (
        Mode("dynamic", "padded", False),
        Mode("packed", "packed", False),
        Mode("static", "padded", True),
        Mode("compiled", "padded", True, True),
    )
}
STATIC = [mode.name for mode in MODES.values() if mode.static]


class Settings(NamedTuple):
    """The same for all modes. `model`: arguments of `SequenceClassifier`, but for its layout."""

    model: dict[str, Any]
    lr: float
    device: str
    precision: str
    seed: int


class Contender:
    """One mode over one workload, with weights of its own that begin as all others' do."""

    def __init__(self, mode: Mode, workload: Workload, settings: Settings):
        self.mode = mode
        self.workload = workload
        self.settings = settings
        self.edges = np.array([workload.longest]) if mode.static else None
        torch.manual_seed(settings.seed)
        model = {**settings.model, "layout": mode.layout}
        self.model = SequenceClassifier(workload.fields, len(workload.classes), **model).to(settings.device)
        self.beginning = copy.deepcopy(self.model.state_dict())
        self.forward: Any = torch.compile(self.model, dynamic=False) if mode.compiled else self.model
        self.reset()

    def reset(self) -> None:
        """Back to the first weights and a new optimiser."""
        self.model.load_state_dict(self.beginning)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.settings.lr)
        self.scaler = torch.amp.GradScaler(self.settings.device, enabled=self.settings.precision == "16-mixed")

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor, np.ndarray | None, Tensor]:
        """Fields, lengths (on the device and, where they are read, on the host), labels."""
        device = self.settings.device
        fields, lengths = pad(self.workload.split.sequences, rows, self.edges)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in fields.items()}
        labels = torch.from_numpy(self.workload.split.labels[rows]).to(device)
        host = lengths if self.mode.layout == "packed" else None
        return tensors, torch.from_numpy(lengths).to(device), host, labels

    def loss(self, rows: np.ndarray) -> Tensor:
        fields, lengths, host, labels = self.batch(rows)
        with self._precision():
            logits = self.forward(fields, lengths, host)
        return nn.functional.cross_entropy(logits.float(), labels)

    def update(self, rows: np.ndarray) -> float:
        """One training step, from rows to new weights; gives its seconds."""
        started = time.perf_counter()
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss(rows)).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._synchronise()
        return time.perf_counter() - started

    def forward_seconds(self, rows: np.ndarray, graph: bool) -> float:
        """Of the forward pass alone, with or without building the graph that is walked backwards."""
        with nullcontext() if graph else torch.no_grad():
            started = time.perf_counter()
            self.loss(rows)
            self._synchronise()
            return time.perf_counter() - started

    @torch.no_grad()
    def quality(self) -> dict[str, float]:
        """Loss and macro recall over the rows that were trained on, each update as it was batched."""
        self.model.eval()
        size = len(self.workload.classes)
        confusion = np.zeros((size, size), np.int64)
        losses = []
        for rows in self.workload.updates:
            fields, lengths, host, labels = self.batch(rows)
            with self._precision():
                logits = self.model(fields, lengths, host).float()
            losses.append(float(nn.functional.cross_entropy(logits, labels)))
            cells = (labels * size + logits.argmax(dim=-1)).cpu().numpy()
            confusion += np.bincount(cells, minlength=size**2).reshape(size, size)
        self.model.train()
        return {"loss": float(np.mean(losses)), "recall": confusion_metrics(confusion, self.workload.classes).recall}

    def padding_efficiency(self) -> float:
        """Real steps over those that stand in the batches."""
        lengths, longest = self.workload.split.sequences.lengths, self.workload.longest
        shapes = [len(rows) * (longest if self.mode.static else lengths[rows].max()) for rows in self.workload.updates]
        return float(lengths[np.concatenate(self.workload.updates)].sum() / sum(shapes))

    def _precision(self) -> Any:
        if self.settings.precision == "32-true":
            return nullcontext()
        half = torch.bfloat16 if self.settings.precision == "bf16-mixed" else torch.float16
        return torch.autocast(self.settings.device, half)

    def _synchronise(self) -> None:
        if self.settings.device == "cuda":
            torch.cuda.synchronize()
