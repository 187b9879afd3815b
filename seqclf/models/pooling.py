"""Pooling of the outputs of all tokens to one vector per sequence, padding excluded."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqclf.errors import InputError

POOLINGS = ("last", "mean", "max", "attention")


def token_mask(lengths: Tensor, longest: int) -> Tensor:
    """Return (B, T) bool, True for tokens and False for padding, from lengths (B,) and T = `longest`.

    >>> token_mask(torch.tensor([3, 1]), longest=3).int().tolist()
    [[1, 1, 1], [1, 0, 0]]
    """
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class Pooling(nn.Module):
    """Pools outputs (B, T, `size`) of sequences of `lengths` (B,) to (B, `self.size`).

    `last`: the forward direction's output at the last token and the backward direction's (`backward_size` channels at
    the end) at the first token, each of which has read all tokens. `attention`: a learned weight per token. Several
    kinds joined by `+` are concatenated.

    >>> outputs = torch.tensor([[[1.0], [5.0], [9.0]], [[2.0], [4.0], [0.0]]])
    >>> Pooling("mean+max", size=1, backward_size=0)(outputs, torch.tensor([3, 2])).tolist()
    [[5.0, 9.0], [3.0, 4.0]]
    """

    def __init__(self, kind: str, size: int, backward_size: int):
        super().__init__()
        self.kinds = kind.split("+")
        if not set(self.kinds) <= set(POOLINGS):
            raise InputError(f"model.pooling={kind}: must be one of {', '.join(POOLINGS)}, or several joined by +")
        if len(set(self.kinds)) < len(self.kinds):
            raise InputError(f"model.pooling={kind}: names a kind twice; remove one")
        self.size = size * len(self.kinds)
        self.forward_size = size - backward_size
        self.score = nn.Linear(size, 1) if "attention" in self.kinds else None

    def forward(self, outputs: Tensor, lengths: Tensor) -> Tensor:
        pooled = [self._pool(kind, outputs, lengths) for kind in self.kinds]
        return torch.cat(pooled, dim=-1) if len(pooled) > 1 else pooled[0]

    def _pool(self, kind: str, outputs: Tensor, lengths: Tensor) -> Tensor:
        if kind == "last":
            last_tokens = (lengths - 1)[:, None, None].expand(-1, 1, self.forward_size)
            forward_last = outputs.gather(1, last_tokens)[:, 0]
            # The backward direction reads its last token first, so it ends at the first one.
            backward_last = outputs[:, 0, self.forward_size :]
            return torch.cat([forward_last, backward_last], dim=-1) if backward_last.shape[-1] else forward_last
        # Padding is chosen away, not multiplied by zero: it may hold NaN.
        inside = token_mask(lengths, outputs.shape[1])[..., None]
        if kind == "mean":
            return torch.where(inside, outputs, 0.0).sum(dim=1) / lengths[:, None].to(outputs.dtype)
        if kind == "max":
            return outputs.masked_fill(~inside, float("-inf")).amax(dim=1)
        assert self.score is not None
        weights = self.score(outputs).masked_fill(~inside, float("-inf")).softmax(dim=1)
        return (weights * torch.where(inside, outputs, 0.0)).sum(dim=1)
