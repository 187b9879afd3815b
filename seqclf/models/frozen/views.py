"""Views of the channels of a sequence of numbers: z-scored rows, their differences, clipped values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqclf.models.pooling import token_mask
from seqclf.models.streaming import State

VIEWS = 3
# Sums of squares of the largest input do not overflow in the float32 states of a stream.
MAX_RAW, MAX_SCALED, MAX_INPUT = 20.0, 100.0, 1e15


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
    return torch.where(valid, values, 0).clamp(-MAX_INPUT, MAX_INPUT), valid


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
