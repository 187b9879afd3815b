"""Dropout that knows of time."""

from __future__ import annotations

from torch import Tensor, nn


class StepDropout(nn.Module):
    """Drops features of (B, T, D) steps: `variational`, the same ones at all steps of a sequence; else anew at each."""

    def __init__(self, share: float, variational: bool):
        super().__init__()
        self.share = share
        self.variational = variational

    def forward(self, steps: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return steps
        if not self.variational:
            return nn.functional.dropout(steps, self.share)
        # One draw for each sequence and feature instead of one for each step too.
        keep = steps.new_empty(len(steps), 1, steps.shape[-1]).bernoulli_(1 - self.share)
        return steps * keep.div_(1 - self.share)
