"""Views of the channels of a sequence of numbers: z-scored rows, their differences, clipped values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

VIEWS = 3
MAX_RAW, MAX_SCALED, MAX_INPUT = 20.0, 100.0, 1e30


class Views(NamedTuple):
    """Views of the values of a batch, 0 at padding.

    `stacked`: (B, 3, D, T) float32: z-scored rows, their differences, clipped values. `valid`: (B, 1, T), False at
    padding.
    """

    stacked: Tensor
    valid: Tensor

    @property
    def raw(self) -> Tensor:
        """(B, D, T) clipped values."""
        return self.stacked[:, 2]


def make_views(values: Tensor, lengths: Tensor) -> Views:
    """Return the views of `values` (B, D, T), whose padding may be NaN."""
    valid = (torch.arange(values.shape[-1], device=values.device) < lengths[:, None])[:, None]
    values = torch.where(valid, values, 0).clamp(-MAX_INPUT, MAX_INPUT)
    # In double precision, squares of large values do not overflow, and constant rows have a deviation of exactly 0.
    exact, counts = values.double(), lengths[:, None, None].double()
    centred = torch.where(valid, exact - exact.sum(-1, keepdim=True) / counts, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / counts).sqrt()
    # Below these floors, a row consists of the rounding noise of its values.
    floor = 1e-4 * exact.abs().amax(-1, keepdim=True) + 1e-9
    scored = centred / torch.maximum(deviation, floor)
    steps = torch.where(valid, differences(scored), 0)
    spread = (steps.square().sum(-1, keepdim=True) / counts).sqrt().clamp(min=1e-5)
    views = [scored.clamp(-MAX_SCALED, MAX_SCALED), (steps / spread).clamp(-MAX_SCALED, MAX_SCALED)]
    return Views(torch.stack([*(view.float() for view in views), values.clamp(-MAX_RAW, MAX_RAW)], dim=1), valid)


def differences(values: Tensor) -> Tensor:
    """Return the difference of each token from the one before, 0 for the first token. `values`: (B, D, T)."""
    return values - torch.cat([values[..., :1], values[..., :-1]], dim=-1)


def level_statistics(views: Views, lengths: Tensor) -> Tensor:
    """(B, 6 D + 1) float64: mean, log deviation, lowest, highest, first and last value, log length."""
    raw, counts = views.raw.double(), lengths[:, None].double()
    mean = raw.sum(-1) / counts
    centred = torch.where(views.valid, raw - mean[..., None], 0)
    # Without the floor, the logarithm would magnify the rounding noise of constant rows.
    deviation = (centred.square().sum(-1) / counts).sqrt().clamp(min=0.01).log()
    lowest = torch.where(views.valid, raw, MAX_RAW).amin(-1)
    highest = torch.where(views.valid, raw, -MAX_RAW).amax(-1)
    is_last = torch.arange(raw.shape[-1], device=raw.device) == lengths[:, None, None] - 1
    last = torch.where(is_last, raw, 0).sum(-1)
    return torch.cat([mean, deviation, lowest, highest, raw[..., 0], last, counts.log()], dim=1)
