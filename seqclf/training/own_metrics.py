"""Metrics of one's own: any torchmetrics Metric of probabilities and labels, computed on all rows of a split at once.

Rows are gathered and sorted before, so that neither batches nor ranks change a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from seqclf.batching.batches import Batch
from seqclf.config.build import Config, build, check
from seqclf.errors import InputError, first_line
from seqclf.settings.train_settings import metric_names


def resolve_metrics(blocks: Sequence[Mapping[str, Any]]) -> list[Config]:
    """Return the settings of metrics with their names. Raises InputError for a class or an argument that is wrong."""
    checked = [check(_of_class(block), Metric, (), f"metrics[{index}]") for index, block in enumerate(blocks)]
    return [{**block, "name": name} for block, name in zip(checked, metric_names(blocks), strict=True)]


class OwnMetrics(Metric):
    """Metrics of one's own on the rows of a split. Each is built anew for each split, on the CPU.

    `blocks`: see `resolve_metrics`. A metric gets probabilities (N, C) float32 and class numbers (N,) int64. With two
    classes, one that cannot read these gets the probabilities (N,) of the class `positive`, and labels that are 1 for
    it. Raises InputError for a metric that returns no finite number for random rows.
    """

    full_state_update = False
    ids: list[Tensor]
    labels: list[Tensor]
    probabilities: list[Tensor]

    def __init__(self, blocks: Sequence[Mapping[str, Any]], num_classes: int, positive: int | None = None):
        super().__init__(compute_with_cache=False)
        keys = [f"metrics[{index}]._target_" for index in range(len(blocks))]
        self.places = {block["name"]: f"{key}={block['_target_']}" for key, block in zip(keys, blocks, strict=True)}
        builds = (partial(build, _of_class(block), Metric, key) for key, block in zip(keys, blocks, strict=True))
        self.builds = dict(zip(self.places, builds, strict=True))
        self.positive = positive
        for name in ("ids", "labels", "probabilities"):
            self.add_state(name, [], dist_reduce_fx="cat")
        labels = torch.arange(5 * num_classes) % num_classes
        logits = torch.randn(len(labels), num_classes, generator=torch.Generator().manual_seed(0))
        self.of_label = {name: self._reads_label(name, logits.softmax(dim=-1), labels) for name in self.builds}

    def update(self, logits: Tensor, batch: Batch) -> None:
        """Add the rows of a batch with logits (B, C): none for a batch without weight, as each rank needs a state."""
        rows = len(batch.ids) if batch.weight else 0
        self.ids.append(torch.as_tensor(batch.ids[:rows], device=logits.device))
        self.labels.append(batch.labels[:rows])
        self.probabilities.append(logits[:rows].softmax(dim=-1))

    def compute(self) -> dict[str, float]:
        """Compute all metrics on all rows since the last reset, over all ranks (see `values`)."""
        order = dim_zero_cat(self.ids).argsort()
        return self.values(dim_zero_cat(self.probabilities)[order].cpu(), dim_zero_cat(self.labels)[order].cpu())

    def values(self, probabilities: Tensor, labels: Tensor) -> dict[str, float]:
        """Return dict name → value on rows with probabilities (N, C) float32 and class numbers (N,) int64.

        Values that are not finite are left out. Raises InputError for a metric that fails.
        """
        found = {name: self._value(name, probabilities, labels, of_label) for name, of_label in self.of_label.items()}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def lower_is_better(self, name: str | None) -> bool:
        """Return the direction of a metric. Raises InputError if its class has none; False for metrics of seqclf."""
        higher = True if name not in self.builds else self.builds[name]().higher_is_better
        if higher is None:
            problem = "its class does not say whether higher values are better"
            raise InputError(f"monitor={name}", problem, "write higher_is_better = True, or False, in the class")
        return not higher

    def _reads_label(self, name: str, probabilities: Tensor, labels: Tensor) -> bool:
        """Return True for a metric of the positive label, False for one of all classes."""
        failed = []
        for of_label in (False,) if self.positive is None else (False, True):
            try:
                if math.isfinite(value := self._value(name, probabilities, labels, of_label)):
                    return of_label
                failed.append(f"is {value} on random rows")
            except InputError as error:
                failed.append(error.problem)
        raise InputError(self.places[name], "; ".join(failed), "see 'A metric' in docs/extending.md")

    def _value(self, name: str, probabilities: Tensor, labels: Tensor, of_label: bool) -> float:
        if of_label:
            probabilities, labels = probabilities[:, self.positive], labels.eq(self.positive or 0).long()
        metric = self.builds[name]()
        for part in metric.modules():
            if isinstance(part, Metric):
                part.distributed_available_fn = _never  # each rank has all rows
        try:
            metric.update(probabilities.clone(), labels.clone())
            return float(metric.compute())
        except Exception as error:  # code of somebody else may raise anything
            problem = f"fails on probabilities {tuple(probabilities.shape)} ({first_line(error)})"
            raise InputError(self.places[name], problem) from error


def _of_class(block: Mapping[str, Any]) -> Config:
    return {key: value for key, value in block.items() if key != "name"}


def _never() -> bool:
    return False
