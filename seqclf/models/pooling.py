"""Outputs of all steps → one vector per sequence, reading only the steps inside each length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqclf.errors import InputError

POOLINGS = ("last", "mean", "max", "attention")


def step_mask(lengths: Tensor, time: int) -> Tensor:
    """(B, T) bool: whether a step is inside its sequence."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


class Pooling(nn.Module):
    """(B, T, `size`) and lengths (B,) → (B, `self.size`).

    `last`: the forward direction's last step, and the first step of the backward direction (`backward_size` channels
    at the end), which each have read the whole sequence. `attention`: a learned weight per step. Several joined by `+`
    stand side by side.
    """

    def __init__(self, kind: str, size: int, backward_size: int):
        super().__init__()
        self.kinds = kind.split("+")
        if not set(self.kinds) <= set(POOLINGS):
            raise InputError(f"model.pooling={kind}: must be one of {', '.join(POOLINGS)}, or several joined by +")
        if len(set(self.kinds)) < len(self.kinds):
            raise InputError(f"model.pooling={kind}: names one twice")
        self.size = size * len(self.kinds)
        self.forward_size = size - backward_size
        self.score = nn.Linear(size, 1) if "attention" in self.kinds else None

    def forward(self, outputs: Tensor, lengths: Tensor) -> Tensor:
        pooled = [self._pool(kind, outputs, lengths) for kind in self.kinds]
        return torch.cat(pooled, dim=-1) if len(pooled) > 1 else pooled[0]

    def _pool(self, kind: str, outputs: Tensor, lengths: Tensor) -> Tensor:
        if kind == "last":
            places = (lengths - 1)[:, None, None].expand(-1, 1, self.forward_size)
            ahead = outputs.gather(1, places)[:, 0]
            back = outputs[:, 0, self.forward_size :]
            return torch.cat([ahead, back], dim=-1) if back.shape[-1] else ahead
        inside = step_mask(lengths, outputs.shape[1])[..., None]
        if kind == "mean":
            return torch.where(inside, outputs, 0.0).sum(dim=1) / lengths[:, None].to(outputs.dtype)
        if kind == "max":
            return outputs.masked_fill(~inside, float("-inf")).amax(dim=1)
        assert self.score is not None
        weights = self.score(outputs).masked_fill(~inside, float("-inf")).softmax(dim=1)
        return (weights * torch.where(inside, outputs, 0.0)).sum(dim=1)
