"""Dropout of token features, drawn per token or per sequence."""

from __future__ import annotations

from torch import Tensor, nn


class TokenDropout(nn.Module):
    """Zeroes a `share` of the features of tokens (B, T, D) in training and scales up the rest.

    With `variational` all tokens of a sequence lose the same features (Gal and Ghahramani 2016), else each token its
    own.

    >>> import torch
    >>> dropped = TokenDropout(0.5, variational=True)(torch.ones(1, 3, 8))[0]
    >>> bool((dropped == dropped[0]).all()), sorted(set(dropped[0].tolist()) | {0.0, 2.0})
    (True, [0.0, 2.0])
    """

    def __init__(self, share: float, variational: bool):
        super().__init__()
        self.share = share
        self.variational = variational

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return tokens
        if not self.variational:
            return nn.functional.dropout(tokens, self.share)
        # One draw per sequence and feature, which broadcasts over its tokens.
        keep = tokens.new_empty(len(tokens), 1, tokens.shape[-1]).bernoulli_(1 - self.share)
        return tokens * keep.div_(1 - self.share)
