"""Clipping of gradients by their norm. Gradients whose norm is below the limit stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def clip_norm(weights: Iterable[Tensor], limit: float) -> None:
    """Scale the gradients of `weights` in place, so that their total norm is at most `limit`.

    The resulting gradients are bit-equal to the gradients that `torch.nn.utils.clip_grad_norm_` gives. If the norm is
    below the limit, the PyTorch function multiplies the gradients by 1. This function skips that multiplication. The
    last bit of the norm depends on the order of the weights. Weights without a gradient are skipped.
    """
    weights = list(weights)
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    # Reading the norm, as the code below does, would wait for a GPU. On a GPU, an unnecessary multiplication is
    # cheaper.
    if not gradients or not all(map(_is_plain, gradients)):
        nn.utils.clip_grad_norm_(weights, limit)
        return
    factor = float(limit) / (total_norm(gradients) + 1e-6)
    if not factor.item() >= 1:  # also true if the factor is NaN, which then reaches every gradient
        torch._foreach_mul_(gradients, factor)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients, as if they were concatenated into one vector."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2.0)), 2.0)


def _is_plain(gradient: Tensor) -> bool:
    return gradient.is_cpu and gradient.dtype is torch.float32 and gradient.layout is torch.strided
