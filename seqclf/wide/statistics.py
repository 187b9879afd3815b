"""Wide path of pooled statistics: what the values of a sequence are on the whole, in steps, and a ridge head.

Six statistics of each channel are read: mean, deviation, lowest, highest, first and last value. Values that a mask
marks as missing count for none of them. Each statistic is a feature, and so are soft comparisons of it with quantiles
of the training rows. So the head adds up a function of each statistic that need not be a straight line, as trees
of depth one would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.models.running_state import LOWEST, State
from seqclf.wide.feature_path import MAX_CELLS, MAX_FEATURES, MAX_SIDE, FeaturePath

STATISTICS = ("mean", "deviation of", "lowest", "highest", "first", "last")  # of a channel, see `Pooled.columns`
MAX_STEPS = 7  # quantiles that a statistic is compared with
STEP_WIDTH = 0.5  # width of a soft comparison, in deviations of the statistic over training rows
MAX_VALUE = 1e15  # larger values are clipped, so that no sum of squares overflows
MAX_SCALED = 5.0  # number of deviations at which a statistic is clipped
OUTER = 0.01  # part of the training rows at each end that does not count for mean and deviation of a statistic


class Pooled(NamedTuple):
    """Statistics of the tokens read so far, float64.

    `tokens`: (B, 1) number of tokens. `seen`: (B, D) number of values of each channel that are not missing. The others:
    (B, D) statistics of these. Without such values, `lowest` and `highest` are the largest and the lowest float32, and
    the others are 0.
    """

    tokens: Tensor
    seen: Tensor
    mean: Tensor
    deviation: Tensor
    lowest: Tensor
    highest: Tensor
    first: Tensor
    last: Tensor

    def joined(self, later: Pooled) -> Pooled:
        """Return the statistics of these tokens and of `later` ones. Either may have none."""
        seen = self.seen + later.seen
        part = later.seen / seen.clamp(min=1)
        step = later.mean - self.mean
        variance = (1 - part) * self.deviation**2 + part * later.deviation**2 + part * (1 - part) * step**2
        return Pooled(
            self.tokens + later.tokens,
            seen,
            self.mean + part * step,
            variance.sqrt(),
            torch.minimum(self.lowest, later.lowest),
            torch.maximum(self.highest, later.highest),
            torch.where(self.seen > 0, self.first, later.first),
            torch.where(later.seen > 0, later.last, self.last),
        )

    def columns(self) -> Tensor:
        """Return the statistics of the channels and the log number of tokens (B, 6 D + 1)."""
        of_values = [self.mean, self.deviation, self.lowest, self.highest, self.first, self.last]
        known = [torch.where(self.seen > 0, values, 0) for values in of_values]
        return torch.cat([*known, self.tokens.clamp(min=1).log()], dim=1)


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
        numbers = [field for field in fields if field["kind"] == "number"]
        width = count_channels(fields)
        pooled = pooled_features(width)
        super().__init__(numbers, num_classes, size=pooled * (1 + steps))
        self.width, self.steps = width, steps
        self.masked = [field.get("masked", 0) for field in numbers]
        self.register_buffer("center", torch.zeros(pooled))
        self.register_buffer("spread", torch.ones(pooled))
        self.register_buffer("quantiles", torch.zeros(pooled, steps))

    def settings(self) -> dict[str, Any]:
        """Return the number of quantiles."""
        return {"steps": self.steps}

    def features(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float64: the scaled statistics, then their comparisons."""
        return self.compared(self.statistics(fields, lengths))

    def statistics(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the statistics (B, 6 D + 1) float64 of whole sequences. The last one is the log length."""
        return self._pool(fields, lengths).columns()

    def compared(self, statistics: Tensor) -> Tensor:
        """Return the features (B, F) float64 of statistics (B, 6 D + 1)."""
        scaled = (statistics - self.center.double()) / self.spread.double()
        scaled = scaled.clamp(-MAX_SCALED, MAX_SCALED)
        steps = (scaled[:, :, None] - self.quantiles.double()) / STEP_WIDTH + 0.5
        return torch.cat([scaled, steps.clamp(0, 1).flatten(1)], dim=1)

    def chunk_states(self) -> list[State]:
        """Return the statistics of the tokens so far."""
        starts = {"lowest": -LOWEST, "highest": LOWEST}
        shapes = {"tokens": (1,)}
        return [State(name, shapes.get(name, (self.width,)), starts.get(name, 0.0)) for name in Pooled._fields]

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. See `WidePath.step`."""
        pooled = Pooled(*(state.double() for state in states)).joined(self._pool(fields, lengths))
        return self.head(self.compared(pooled.columns())), [state.float() for state in pooled]

    def _pool(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Pooled:
        numbers = [fields[name] for name in self.names]
        values = torch.cat(numbers, dim=-1).clamp(-MAX_VALUE, MAX_VALUE)
        is_token = (torch.arange(values.shape[1], device=values.device) < lengths[:, None])[:, :, None]
        present = torch.cat([_present(part, masked) for part, masked in zip(numbers, self.masked, strict=True)], dim=-1)
        valid = is_token & present
        exact = torch.where(valid, values, 0).double()
        order = valid.long().cumsum(dim=1)
        seen = order[:, -1:]
        counts = seen[:, 0].double()
        mean = exact.sum(dim=1) / counts.clamp(min=1)
        centred = torch.where(valid, exact - mean[:, None], 0)
        return Pooled(
            lengths[:, None].double(),
            counts,
            mean,
            (centred.square().sum(dim=1) / counts.clamp(min=1)).sqrt(),
            torch.where(valid, values, -LOWEST).amin(dim=1).double(),
            torch.where(valid, values, LOWEST).amax(dim=1).double(),
            torch.where(order == 1, exact, 0).sum(dim=1),
            torch.where(order == seen, exact, 0).sum(dim=1),
        )

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True if there are number fields, and not too many channels."""
        width = count_channels(fields)
        return width > 0 and pooled_features(width) <= MAX_FEATURES

    @classmethod
    def unfitted(cls, sequences: Ragged, fields: Sequence[FieldSpec], num_classes: int) -> Self:
        """Return a path for training rows.

        With many channels, statistics are compared with fewer quantiles, so that more rows can fit the head (see
        `FeaturePath.fit`).
        """
        pooled = pooled_features(count_channels(fields))
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


def _present(values: Tensor, masked: int) -> Tensor:
    """(B, T, D) True where a value (B, T, D) is not missing. `masked`: see `NumberSpec`."""
    masks = values[..., masked : 2 * masked] > 0
    return torch.cat([masks, torch.ones_like(values[..., masked:], dtype=torch.bool)], dim=-1)


def count_channels(fields: Sequence[FieldSpec]) -> int:
    """Return the number of channels of all number fields."""
    return sum(field["width"] for field in fields if field["kind"] == "number")


def pooled_features(width: int) -> int:
    """Return the number of statistics of `width` channels, with the log length.

    >>> pooled_features(2)
    13
    """
    return len(STATISTICS) * width + 1
