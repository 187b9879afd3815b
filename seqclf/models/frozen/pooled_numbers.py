"""Pooled statistics of number fields: what the values of a sequence are on the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec, number_specs
from seqclf.models.pooling import token_mask
from seqclf.models.streaming import LOWEST, State

STATISTICS = 6  # for each channel, see `Pooled.columns`
MAX_VALUE = 1e15  # larger values are clipped, so that no sum of squares overflows


class Pooled(NamedTuple):
    """Statistics (B, D) of sequences, float64: `tokens` (B, 1), and `seen`, the number of values that are not missing.

    Without values, `lowest` and `highest` are the largest and the lowest float32, and the others are 0.
    """

    tokens: Tensor
    seen: Tensor
    mean: Tensor
    deviation: Tensor
    lowest: Tensor
    highest: Tensor
    first: Tensor
    last: Tensor

    def after(self, states: Sequence[Tensor]) -> Pooled:
        """Return the statistics of the tokens of `states` (see `NumberPool.states`) and of these tokens."""
        earlier = Pooled(*(state.double() for state in states))
        mean = earlier.mean + earlier.first
        seen = self.seen + earlier.seen
        part = self.seen / seen.clamp(min=1)
        step = self.mean - mean
        variance = (1 - part) * earlier.deviation**2 + part * self.deviation**2 + part * (1 - part) * step**2
        return Pooled(
            self.tokens + earlier.tokens,
            seen,
            mean + part * step,
            variance.sqrt(),
            torch.minimum(self.lowest, earlier.lowest),
            torch.maximum(self.highest, earlier.highest),
            torch.where(earlier.seen > 0, earlier.first, self.first),
            torch.where(self.seen > 0, self.last, earlier.last),
        )

    def kept(self) -> list[Tensor]:
        """Return the states of the tokens so far, float32; the mean is kept as its distance from the first value.

        A mean of 100,000 would lose 0.01 in each chunk.
        """
        return [state.float() for state in self._replace(mean=self.mean - self.first)]

    def columns(self) -> Tensor:
        """Return the statistics of the channels and the log number of tokens (B, 6 D + 1)."""
        of_values = [self.mean, self.deviation, self.lowest, self.highest, self.first, self.last]
        known = [torch.where(self.seen > 0, values, 0) for values in of_values]
        return torch.cat([*known, self.tokens.clamp(min=1).log()], dim=1)


class NumberPool:
    """Pools all D channels of the number fields of a model. Values that a mask marks as missing do not count.

    >>> NumberPool([{"name": "speed", "kind": "number", "width": 2}]).size
    13
    """

    def __init__(self, fields: Iterable[FieldSpec]):
        numbers = number_specs(fields)
        self.names = [field["name"] for field in numbers]
        self.masked = [field.get("masked", 0) for field in numbers]
        self.width = sum(field["width"] for field in numbers)
        starts = [sum(field["width"] for field in numbers[:index]) for index in range(len(numbers))]
        # Channels of values, without the masks and times that are beside those with missing values.
        self.channels = [
            start + channel
            for start, field in zip(starts, numbers, strict=True)
            for channel in range(field.get("masked", 0) or field["width"])
        ]
        # Statistics of all channels, and the log number of tokens.
        self.size = STATISTICS * self.width + 1 if numbers else 0

    def __call__(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Pooled:
        """Return the statistics of tokens. For the arguments, see `SequenceNetwork.forward`."""
        values, valid = self.values(fields, lengths)
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

    def values(self, fields: Mapping[str, Tensor], lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values (B, T, D) of tokens, and (B, T, D) True where one is present."""
        numbers = [fields[name] for name in self.names]
        values = torch.cat(numbers, dim=-1).clamp(-MAX_VALUE, MAX_VALUE)
        present = torch.cat([_present(part, masked) for part, masked in zip(numbers, self.masked, strict=True)], dim=-1)
        return values, token_mask(lengths, values.shape[1])[:, :, None] & present

    def states(self) -> list[State]:
        """Return the states that `Pooled.kept` gives, before the first token."""
        starts, shapes = {"lowest": -LOWEST, "highest": LOWEST}, {"tokens": (1,)}
        return [
            State(f"pool_{name}", shapes.get(name, (self.width,)), starts.get(name, 0.0)) for name in Pooled._fields
        ]


def _present(values: Tensor, masked: int) -> Tensor:
    """(B, T, D) True where a value (B, T, D) is not missing. `masked`: see `NumberSpec`."""
    masks = values[..., masked : 2 * masked] > 0
    return torch.cat([masks, torch.ones_like(values[..., masked:], dtype=torch.bool)], dim=-1)
