"""Batch normalization that ignores padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MaskedNorm(nn.Module):
    """Batch normalization over the tokens of a batch that are not padding.

    In training, the statistics are those of the batch, which enter the running ones with the weight `momentum`.
    Evaluation uses the running ones, so the output for a token depends only on the token. `eps` bounds the factor of a
    channel that is nearly constant.

    >>> norm = MaskedNorm(2).eval()
    >>> norm(torch.ones(1, 3, 2), torch.ones(1, 3, 1)).shape
    torch.Size([1, 3, 2])
    """

    averaged_buffers = ("mean", "variance")  # buffers that belong to the averaged weights

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int, momentum: float = 0.1, eps: float = 1e-3):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.momentum, self.eps = momentum, eps
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalized `values` (B, T, C), or (B, C) for one vector of each sequence. Padding must be finite.

        `mask`: (B, T, 1) float, 1 for tokens and 0 for padding. None for vectors (B, C).
        """
        mean, variance = self.mean, self.variance
        # A batch of one vector has no variance.
        if self.training and (mask is not None or len(values) > 1):
            mean, variance = self._statistics(values, mask)
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(variance, self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return values * scale + (self.bias - mean * scale)

    @staticmethod
    def _statistics(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is None:
            return values.mean(0), values.var(0, unbiased=False)
        count = mask.sum()
        mean = (values * mask).sum((0, 1)) / count
        return mean, ((values - mean) * mask).square().sum((0, 1)) / count
