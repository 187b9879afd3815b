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
