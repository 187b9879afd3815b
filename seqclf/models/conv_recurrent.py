"""Strided convolutions before a recurrent stack, for raw signals of hundreds to thousands of tokens."""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
import torch
from pydantic import AfterValidator
from torch import Tensor, nn

from seqclf.config.argument_types import checks_values
from seqclf.config.options import Count, ZeroOrMore
from seqclf.errors import InputError, RefusedValueError
from seqclf.models.embedding import TokenDropout
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.options import CellName, DropoutShare, Layout
from seqclf.models.pooling import token_mask
from seqclf.models.recurrent import Recurrent

Lengths = TypeVar("Lengths", Tensor, np.ndarray)


def require_odd(value: int) -> int:
    """Refuse an even number of tokens."""
    if value % 2 == 0:
        raise RefusedValueError("must be an odd number, of a token and as many on either side")
    return value


def require_strides(value: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse an empty list, and steps of less than a token."""
    if min(value, default=0) < 1:
        raise RefusedValueError("must be a list of whole numbers from 1, such as [4, 2]")
    return value


Kernel = Annotated[Count, AfterValidator(require_odd)]
Strides = Annotated[tuple[int, ...], AfterValidator(require_strides)]


def shortened(lengths: Lengths, stride: int) -> Lengths:
    """Return ceil(length / stride), the tokens that are left of each sequence.

    >>> shortened(np.array([1, 4, 5]), stride=4).tolist()
    [1, 1, 2]
    """
    return (lengths + (stride - 1)) // stride


class StridedConvolution(nn.Module):
    """Convolution over time and ReLU: (B, T, `inputs`) → (B, ceil(T / stride), `channels`).

    Output j sees `kernel` tokens, an odd number, around token j * stride. The padding counts as zeros, as does
    everything beyond both ends of a sequence, so an output depends on nothing but the tokens of its sequence.

    There is no norm. Statistics over a batch or over time would let batch mates and padding into the logits, and a norm
    of each token makes noise as large as the event that stands out from it.
    """

    def __init__(self, inputs: int, channels: int, kernel: int, stride: int):
        super().__init__()
        self.margins = (kernel // 2, kernel // 2)
        self.convolution = nn.Conv1d(inputs, channels, kernel, stride)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        # Chosen away, not multiplied by zero: it may hold NaN.
        inside = token_mask(lengths, tokens.shape[1])[..., None]
        signal = torch.where(inside, tokens, 0.0).transpose(1, 2)
        # Padded here: with padding of its own, the exporter would fix T where it shrinks to a single token.
        return self.convolution(nn.functional.pad(signal, self.margins)).transpose(1, 2).relu()


class ConvRecurrent(SequenceEncoder):
    """Convolutions that shorten time by the product of `strides`, then a `Recurrent` stack over what is left.

    Each convolution has `channels` channels and sees `kernel` tokens. A sequence of n tokens keeps ceil(n / stride) of
    them at each. The recurrence, by far the largest part of the work, takes as many times fewer steps.

    Outputs are those of the last convolution beside those of the recurrence, so that a pooling sees an event itself and
    not only what the recurrence has learned to keep of it.

    >>> encoder = ConvRecurrent(3, channels=4, kernel=5, strides=[4, 2], hidden_size=8)
    >>> host = np.array([20, 1])
    >>> outputs, lengths, _ = encoder(torch.zeros(2, 20, 3), torch.from_numpy(host), host)
    >>> outputs.shape, lengths
    (torch.Size([2, 3, 20]), tensor([3, 1]))
    """

    @checks_values("model")
    def __init__(
        self,
        input_size: int,
        *,
        channels: Count = 32,
        kernel: Kernel = 9,
        strides: Strides = (4, 2),
        cell: CellName = "lstm",
        hidden_size: Count = 96,
        layers: Count = 1,
        residual_layers: ZeroOrMore = 0,
        bidirectional: bool = True,
        layout: Layout = "auto",
        dropout: DropoutShare = 0.25,
        variational: bool = False,
    ):
        super().__init__()
        if kernel < max(strides):
            raise InputError(
                f"model.kernel={kernel}", "skips tokens", "set it to at least the largest of model.strides"
            )
        self.strides = list(strides)
        sizes = [input_size] + [channels] * (len(strides) - 1)
        self.convolutions = nn.ModuleList(
            StridedConvolution(size, channels, kernel, stride) for size, stride in zip(sizes, strides, strict=True)
        )
        self.dropout = TokenDropout(dropout, variational)
        self.recurrent = Recurrent(
            channels,
            cell=cell,
            hidden_size=hidden_size,
            layers=layers,
            bidirectional=bidirectional,
            layout=layout,
            dropout=dropout,
            variational=variational,
            residual_layers=residual_layers,
        )
        self.size = channels + self.recurrent.size
        self.backward_size = self.recurrent.backward_size

    def forward(
        self, tokens: Tensor, lengths: Tensor, host_lengths: np.ndarray | None
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        for convolution, stride in zip(self.convolutions, self.strides, strict=True):
            tokens = convolution(tokens, lengths)
            lengths = shortened(lengths, stride)
            host_lengths = None if host_lengths is None else shortened(host_lengths, stride)
        tokens = self.dropout(tokens)
        outputs, lengths, host_lengths = self.recurrent(tokens, lengths, host_lengths)
        return torch.cat([tokens, outputs], dim=-1), lengths, host_lengths
