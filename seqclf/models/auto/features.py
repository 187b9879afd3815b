"""Numbers that the front end computes of the numbers of a sequence: views for the kernels, and pooled statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec, number_specs
from seqclf.models.pooling import token_mask
from seqclf.models.streaming import LOWEST, State

VIEWS = 3
# Sums of squares of the largest input do not overflow in the float32 states of a stream.
MAX_RAW, MAX_SCALED, MAX_VALUE = 20.0, 100.0, 1e15  # larger inputs are clipped


def make_views(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the views (B, 3, D, T) float32 of `values` (B, D, T), whose padding may be NaN: 0 at padding."""
    values, valid = _clipped(values, lengths)
    # In double precision, squares of large values do not overflow, and constant rows have a deviation of exactly 0.
    exact, counts = values.double(), lengths[:, None, None].double()
    centred = torch.where(valid, exact - exact.sum(-1, keepdim=True) / counts, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / counts).sqrt()
    # Below these floors, a row consists of the rounding noise of its values.
    floor = 1e-4 * exact.abs().amax(-1, keepdim=True) + 1e-9
    scored = centred / torch.maximum(deviation, floor)
    steps = torch.where(valid, scored - torch.cat([scored[..., :1], scored[..., :-1]], dim=-1), 0)
    spread = (steps.square().sum(-1, keepdim=True) / counts).sqrt().clamp(min=1e-5)
    return _stacked(scored, steps / spread, values)


def _clipped(values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return values (B, D, T) that are 0 at padding, and (B, 1, T) False at padding."""
    valid = token_mask(lengths, values.shape[-1])[:, None]
    return torch.where(valid, values, 0).clamp(-MAX_VALUE, MAX_VALUE), valid


def _stacked(scored: Tensor, changes: Tensor, values: Tensor) -> Tensor:
    views = [view.clamp(-MAX_SCALED, MAX_SCALED).float() for view in (scored, changes)]
    return torch.stack([*views, values.clamp(-MAX_RAW, MAX_RAW)], dim=1)


def running_states(width: int) -> list[State]:
    """Return the states that `running_views` carries from chunk to chunk, for `width` channels D."""
    names = ("first", "last", "sum", "squares", "changes")
    return [*(State(f"view_{name}", (width,)) for name in names), State("view_count", (1,))]


def running_views(
    values: Tensor, lengths: Tensor, states: Sequence[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return views (B, 3, D, T) of which none depends on later tokens, and the states after the last token.

    The deviation of each token from the mean, and its change, are scaled by the tokens up to it. `values`: (B, D, T),
    whose padding may be NaN. `lengths`: (B,) number of tokens, at least 1. `states`: see `running_states`; None for the
    start.
    """
    values, valid = _clipped(values, lengths)
    exact = values.double()
    start, zeros = exact[..., 0], torch.zeros_like(exact[..., 0])
    first, last, total, squares, changes, count = start, start, zeros, zeros, zeros, zeros[:, :1]
    if states is not None:
        first, last, total, squares, changes, count = (state.double() for state in states)
        first, last = torch.where(count > 0, first, start), torch.where(count > 0, last, start)
    # Sums of distances from the first value keep their precision for values far from zero.
    away = torch.where(valid, exact - first[..., None], 0)
    steps = torch.where(valid, exact - torch.cat([last[..., None], exact[..., :-1]], dim=-1), 0)
    seen = count[..., None] + torch.arange(1, values.shape[-1] + 1, device=values.device)
    total, squares, changes = (
        before[..., None] + part.cumsum(-1)
        for before, part in ((total, away), (squares, away.square()), (changes, steps.square()))
    )
    mean = total / seen
    variance = (squares / seen - mean.square()).clamp(min=0)
    floor = 1e-4 * ((mean + first[..., None]).square() + variance).sqrt() + 1e-9
    scored = (away - mean) / torch.maximum(variance.sqrt(), floor)
    moved = steps / torch.maximum((changes / seen).sqrt(), floor)
    stacked = torch.where(valid[:, None], _stacked(scored, moved, values), 0.0)
    end = (lengths - 1)[:, None, None].expand(-1, values.shape[1], 1)
    after = [at.gather(-1, end)[..., 0] for at in (exact, total, squares, changes)]
    count = count + lengths[:, None]
    return stacked, [state.float() for state in (first, *after, count)]


STATISTICS = 6  # for each channel, see `Pooled.columns`


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
        width = (self.width,)
        return [State(f"pool_{name}", shapes.get(name, width), starts.get(name, 0.0)) for name in Pooled._fields]


def _present(values: Tensor, masked: int) -> Tensor:
    masks = values[..., masked : 2 * masked] > 0
    return torch.cat([masks, torch.ones_like(values[..., masked:], dtype=torch.bool)], dim=-1)
