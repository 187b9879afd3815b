"""Clipping of gradients by their norm, which leaves gradients below the limit alone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def clip_norm(weights: Iterable[Tensor], limit: float) -> None:
    """Scale the gradients of `weights` in place, so that their norm is at most `limit`.

    The gradients are bit-equal to those of `torch.nn.utils.clip_grad_norm_`, which multiplies by 1 below the limit too.
    The norm depends on the order of the weights in its last bit. Weights without a gradient are skipped.
    """
    weights = list(weights)
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    # On a GPU, reading the norm would wait for the device. The multiplication is cheaper there.
    if not gradients or not all(map(_is_plain, gradients)):
        nn.utils.clip_grad_norm_(weights, limit)
        return
    factor = float(limit) / (total_norm(gradients) + 1e-6)
    if not factor.item() >= 1:  # NaN too, which then reaches every gradient
        torch._foreach_mul_(gradients, factor)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm of all gradients as one vector, in the order of the list."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2.0)), 2.0)


def _is_plain(gradient: Tensor) -> bool:
    return gradient.is_cpu and gradient.dtype is torch.float32 and gradient.layout is torch.strided
