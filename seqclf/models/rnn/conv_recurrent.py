"""Encoder with strided convolutions before recurrent layers, for raw signals of hundreds to thousands of tokens."""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from seqclf.config.argument_types import checks_values
from seqclf.config.options import Count, ZeroOrMore
from seqclf.errors import InputError
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.options import CellName, DropoutShare, Layout
from seqclf.models.pooling import token_mask
from seqclf.models.rnn.recurrent import Recurrent

Lengths = TypeVar("Lengths", Tensor, np.ndarray)


Strides = Annotated[tuple[Count, ...], Field(min_length=1)]


def shortened(lengths: Lengths, stride: int) -> Lengths:
    """Return the length of each sequence after a convolution, ceil(length / stride).

    >>> shortened(np.array([1, 4, 5]), stride=4).tolist()
    [1, 1, 2]
    """
    return (lengths + (stride - 1)) // stride


class StridedConvolution(nn.Module):
    """Convolution over the time axis, then ReLU: (B, T, `inputs`) → (B, ceil(T / stride), `channels`).

    Output j reads the `kernel` tokens around token j * stride, where `kernel` is an odd number. Positions before the
    start or after the end of a sequence are read as zeros, so an output depends only on the tokens of its own sequence.

    The layer has no normalization. With batch normalization, the logits would depend on other sequences of the batch.
    With normalization over the time axis, the logits would depend on the padding. With normalization of each token,
    noise would become as large as an event in the signal.
    """

    def __init__(self, inputs: int, channels: int, kernel: int, stride: int):
        super().__init__()
        self.margins = (kernel // 2, kernel // 2)
        self.convolution = nn.Conv1d(inputs, channels, kernel, stride)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        # Zero the padding with torch.where. Multiplying the padding by 0 would not work, because padding may be NaN.
        inside = token_mask(lengths, tokens.shape[1])[..., None]
        signal = torch.where(inside, tokens, 0.0).transpose(1, 2)
        # Do not use the padding option of Conv1d, because the ONNX exporter then fixes T if the convolution shortens T
        # to 1.
        return self.convolution(nn.functional.pad(signal, self.margins)).transpose(1, 2).relu()


class ConvRecurrent(SequenceEncoder):
    """Encoder of strided convolutions, which shorten the sequence, followed by a `Recurrent` stack.

    Each stride in `strides` belongs to one convolution. A convolution has `channels` channels, reads `kernel` tokens
    for each output, and shortens a sequence of n tokens to ceil(n / stride) tokens. Most of the compute time is spent
    in the recurrent stack. The convolutions reduce this time, because they divide the number of tokens by the product
    of `strides`.

    Each output of the encoder concatenates an output of the last convolution and an output of the recurrent stack. With
    the output of the convolution, the pooling can detect an event even if the recurrent stack forgets the event.

    The other arguments are those of `Recurrent`. Dropout is also applied to the outputs of the last convolution.

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
        kernel: Count = 9,
        strides: Strides = (4, 2),
        cell: CellName = "lstm",
        hidden_size: Count = 96,
        layers: Count = 1,
        residual_layers: ZeroOrMore = 0,
        bidirectional: bool = True,
        layout: Layout = "auto",
        dropout: DropoutShare = 0.25,
    ):
        super().__init__()
        if kernel % 2 == 0 or kernel < max(strides):
            remedy = "set an odd number, at least the largest of model.strides"
            raise InputError(f"model.kernel={kernel}", "is even or skips tokens", remedy)
        self.strides = list(strides)
        sizes = [input_size] + [channels] * (len(strides) - 1)
        self.convolutions = nn.ModuleList(
            StridedConvolution(size, channels, kernel, stride) for size, stride in zip(sizes, strides, strict=True)
        )
        self.dropout = nn.Dropout(dropout)
        self.recurrent = Recurrent(
            channels,
            cell=cell,
            hidden_size=hidden_size,
            layers=layers,
            bidirectional=bidirectional,
            layout=layout,
            dropout=dropout,
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
