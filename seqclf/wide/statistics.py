"""Wide path of pooled statistics: what the values of a sequence are on the whole, in steps, and a ridge head.

Six statistics of each channel are read: mean, deviation, lowest, highest, first and last value. Values that a mask
marks as missing count for none of them. Each statistic is a feature, and so are soft comparisons of it with quantiles
of the training rows. So the head adds up a function of each statistic that need not be a straight line, as trees
of depth one would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.models.heads.pooled_numbers import NumberPool
from seqclf.models.running_state import State
from seqclf.wide.feature_path import MAX_CELLS, MAX_FEATURES, MAX_SIDE, FeaturePath

MAX_STEPS = 7  # quantiles that a statistic is compared with
STEP_WIDTH = 0.5  # width of a soft comparison, in deviations of the statistic over training rows
MAX_SCALED = 5.0  # number of deviations at which a statistic is clipped
OUTER = 0.01  # part of the training rows at each end that does not count for mean and deviation of a statistic


class Statistics(FeaturePath):
    """Pooled statistics of all number fields (B, T, D channels in total), in steps, and a ridge head.

    Args:
        fields: Specs of the model's inputs. Fields that are not numbers are not read.
        num_classes: Number of classes C.
        steps: Number of quantiles that each statistic is compared with.
    """

    title = "pooled statistics"
    reads_chunks = True
    center: Tensor
    spread: Tensor
    quantiles: Tensor

    def __init__(self, fields: Sequence[FieldSpec], num_classes: int, *, steps: int):
        pool = NumberPool(fields)
        numbers = [field for field in fields if field["kind"] == "number"]
        super().__init__(numbers, num_classes, size=pool.size * (1 + steps))
        self.pool, self.steps = pool, steps
        self.register_buffer("center", torch.zeros(pool.size))
        self.register_buffer("spread", torch.ones(pool.size))
        self.register_buffer("quantiles", torch.zeros(pool.size, steps))

    def settings(self) -> dict[str, Any]:
        """Return the number of quantiles."""
        return {"steps": self.steps}

    def features(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float64: the scaled statistics, then their comparisons."""
        return self.compared(self.statistics(fields, lengths))

    def statistics(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the statistics (B, 6 D + 1) float64 of whole sequences. The last one is the log length."""
        return self.pool(fields, lengths).columns()

    def compared(self, statistics: Tensor) -> Tensor:
        """Return the features (B, F) float64 of statistics (B, 6 D + 1)."""
        scaled = (statistics - self.center.double()) / self.spread.double()
        scaled = scaled.clamp(-MAX_SCALED, MAX_SCALED)
        steps = (scaled[:, :, None] - self.quantiles.double()) / STEP_WIDTH + 0.5
        return torch.cat([scaled, steps.clamp(0, 1).flatten(1)], dim=1)

    def chunk_states(self) -> list[State]:
        """Return the statistics of the tokens so far."""
        return self.pool.states()

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. See `WidePath.step`."""
        pooled = self.pool(fields, lengths).after(states)
        return self.head(self.compared(pooled.columns())), pooled.kept()

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True if there are number fields, and not too many channels."""
        pool = NumberPool(fields)
        return pool.width > 0 and pool.size <= MAX_FEATURES

    @classmethod
    def unfitted(cls, sequences: Ragged, fields: Sequence[FieldSpec], num_classes: int) -> Self:
        """Return a path for training rows.

        With many channels, statistics are compared with fewer quantiles, so that more rows can fit the head (see
        `FeaturePath.fit`).
        """
        pooled = NumberPool(fields).size
        most = min(MAX_CELLS // len(sequences), MAX_FEATURES if len(sequences) <= MAX_SIDE else MAX_SIDE)
        return cls(fields, num_classes, steps=min(MAX_STEPS, max(0, most // pooled - 1)))

    def choose_thresholds(self, sequences: Ragged, rows: np.ndarray, generator: np.random.Generator) -> None:
        """Set center, deviation and quantiles of each statistic by the training rows that fit the head."""
        pooled = self._read(sequences, rows, self.statistics, len(self.center)).double().numpy()
        inner = np.clip(pooled, *np.quantile(pooled, (OUTER, 1 - OUTER), axis=0))
        # A statistic that varies less than this is constant but for the rounding of its sums.
        floor = 1e-4 * np.abs(inner).max(axis=0) + 1e-9
        self.center.copy_(torch.from_numpy(inner.mean(axis=0)))
        self.spread.copy_(torch.from_numpy(np.maximum(inner.std(axis=0), floor)))
        scaled = (torch.from_numpy(pooled) - self.center.double()) / self.spread.double()
        at = np.arange(1, self.steps + 1) / (self.steps + 1)
        self.quantiles.copy_(torch.from_numpy(np.quantile(scaled.clamp(-MAX_SCALED, MAX_SCALED), at, axis=0).T))

    def scales(self, features: Tensor) -> Tensor:
        """Return factors (F,) of 1: statistics have a deviation of about 1, and comparisons count for less."""
        return torch.ones(features.shape[1], dtype=torch.float64)
