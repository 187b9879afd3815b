"""Recurrent layers, LSTM, GRU or RNN: the encoder of stacked layers, and layers for encoders of one's own.

Lengths are handled here: padding changes no output and no last state. Each direction of each layer is a module of its
own, because cuDNN has fast persistent kernels only for one layer and one direction. The backward module reads the
tokens of each sequence in reverse order (see `flip_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.errors import InputError
from seqclf.models.classifier import SequenceEncoder
from seqclf.models.network import HostLengths
from seqclf.models.onnx.operators import STATE_NAMES, OnnxLayer
from seqclf.models.pooling import Pooling, token_mask
from seqclf.models.streaming import State
from seqclf.settings.base import Count, DropoutShare, ZeroOrMore

CellName = Literal["lstm", "gru", "rnn"]
Layout = Literal["auto", "padded", "packed"]
CELLS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def flip_order(lengths: Tensor, longest: int) -> Tensor:
    """Return indices (B, T) int64 that reverse the tokens of each sequence. The padding stays in its place.

    >>> flip_order(torch.tensor([3, 2]), longest=4).tolist()
    [[2, 1, 0, 3], [1, 0, 2, 3]]
    """
    tokens = torch.arange(longest, device=lengths.device)
    return torch.where(tokens < lengths[:, None], lengths[:, None] - 1 - tokens, tokens)


def check_residual_layers(residual_layers: int, layers: int) -> None:
    """Raise InputError unless an encoder has a layer below its residual layers."""
    if residual_layers >= layers:
        problem = f"must be at least 0 and less than model.layers={layers}"
        raise InputError(f"model.residual_layers={residual_layers}", problem, "the first layer cannot be residual")


class Recurrent(SequenceEncoder):
    """Encoder of stacked LSTM, GRU or RNN layers: (B, T, `input_size`) and lengths (B,) → (B, T, `self.size`).

    `cell`: "lstm", "gru" or "rnn". `hidden_size`: number of units of each layer and direction. `bidirectional`: True
    for a second direction in each layer, which reads from the last token to the first one. `dropout`: probability of
    zeroing a feature of a token between two layers.

    `layout`: "packed" skips the padding tokens, "padded" computes them too, with the same result: by far the fastest
    layout if the sequences of a batch have similar lengths. "auto" is the same as "padded". `residual_layers`: number
    of layers, the last of the stack, whose output is multiplied by a learned factor and added to their input. The
    factor is initially 0, so a new one is the identity (ReZero, Bachlechner et al. 2021).

    >>> import numpy as np
    >>> encoder = Recurrent(3, cell="gru", hidden_size=8)
    >>> lengths = np.array([5, 2])
    >>> outputs, _, _ = encoder(torch.zeros(2, 5, 3), torch.from_numpy(lengths), lengths)
    >>> outputs.shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        input_size: int,
        *,
        cell: CellName = "lstm",
        hidden_size: Count = 96,
        layers: Count = 1,
        residual_layers: ZeroOrMore = 0,
        bidirectional: bool = True,
        layout: Layout = "auto",
        dropout: DropoutShare = 0.25,
    ):
        super().__init__()
        check_residual_layers(residual_layers, layers)
        self.cell = cell
        self.layout = layout
        self.size = hidden_size * (2 if bidirectional else 1)
        self.backward_size = hidden_size if bidirectional else 0
        self.dropout = nn.Dropout(dropout)
        # Keep this order, first all forward layers and then all backward layers, because with a fixed seed the order
        # determines the initial weights.
        sizes = [input_size] + [self.size] * (layers - 1)
        self.forward_layers = nn.ModuleList(CELLS[cell](size, hidden_size, batch_first=True) for size in sizes)
        backward = sizes if bidirectional else []
        self.backward_layers = nn.ModuleList(CELLS[cell](size, hidden_size, batch_first=True) for size in backward)
        self.first_residual = layers - residual_layers
        self.scales = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(residual_layers))

    def forward(self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths) -> tuple[Tensor, Tensor, HostLengths]:
        order = flip_order(lengths, tokens.shape[1]) if self.backward_layers else None
        for index, layer in enumerate(self.forward_layers):
            inputs = self.dropout(tokens) if index else tokens  # the caller applied dropout to the first input
            outputs = self._run(layer, inputs, host_lengths)
            if order is not None:
                # Reverse the tokens of each sequence, so that the backward direction starts at the last token.
                flipped = self._run(self.backward_layers[index], reorder(inputs, order), host_lengths)
                outputs = torch.cat([outputs, reorder(flipped, order)], dim=-1)
            residual = index - self.first_residual
            tokens = outputs if residual < 0 else tokens + self.scales[residual] * outputs
        return tokens, lengths, host_lengths

    def _run(self, layer: nn.Module, tokens: Tensor, host_lengths: HostLengths) -> Tensor:
        # Packed sequences take 5 times as long on CPUs (oneDNN lacks them), and cuDNN's standard algorithm on GPUs.
        if self.layout != "packed":
            if needs_float32(layer, tokens):
                with torch.autocast("cpu", enabled=False):
                    return layer(tokens.float())[0]
            return layer(tokens)[0]
        assert host_lengths is not None
        packed = pack_padded_sequence(tokens, torch.from_numpy(host_lengths), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=tokens.shape[1])[0]

    def onnx_form(self) -> nn.Module:
        return OnnxRecurrent(self)

    def streaming(self) -> RecurrentStep | None:
        # A backward direction cannot read in chunks, because it starts at the last token, which is in the last chunk.
        return None if self.backward_layers else RecurrentStep(self)


def needs_float32(layer: nn.Module, tokens: Tensor) -> bool:
    """Return True if the layer is an LSTM and autocast would use a dtype that this CPU does not support for LSTMs."""
    casts = isinstance(layer, nn.LSTM) and tokens.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return casts and not _cpu_runs_lstm_in(torch.get_autocast_dtype("cpu"))


@cache
def _cpu_runs_lstm_in(dtype: torch.dtype) -> bool:
    """Return True if oneDNN supports LSTMs of this dtype here; bfloat16 needs AVX-512."""
    try:
        with torch.random.fork_rng(devices=[]), torch.autocast("cpu", dtype):
            nn.LSTM(1, 1, batch_first=True)(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True


def reorder(tokens: Tensor, order: Tensor) -> Tensor:
    """Return the tokens (B, T, D) in the order of the indices `order` (B, T) (see `flip_order`)."""
    return tokens.gather(1, order[..., None].expand(-1, -1, tokens.shape[-1]))


class OnnxRecurrent(nn.Module):
    """A `Recurrent` encoder with one ONNX operator per layer, which computes both directions and skips the padding."""

    def __init__(self, recurrent: Recurrent):
        super().__init__()
        directions = filter(len, (recurrent.forward_layers, recurrent.backward_layers))
        layers: Iterable[Any] = zip(*directions, strict=True)
        self.layers = nn.ModuleList(OnnxLayer(modules) for modules in layers)
        self.first_residual, self.scales = recurrent.first_residual, recurrent.scales

    def forward(self, tokens: Tensor, lengths: Tensor, host_lengths: Any) -> tuple[Tensor, Tensor, Any]:
        outputs, _ = self.run(tokens, lengths, [()] * len(self.layers))
        return outputs, lengths, host_lengths

    def run(
        self, tokens: Tensor, lengths: Tensor, states: Sequence[Sequence[Tensor]]
    ) -> tuple[Tensor, list[Sequence[Tensor]]]:
        """Return the outputs (B, T, size), and the last states of each layer. `states`: see `OnnxLayer`."""
        tokens, last = tokens.transpose(0, 1), []
        for index, (layer, initial) in enumerate(zip(self.layers, states, strict=True)):
            outputs, layer_states = layer(tokens, lengths, initial)
            residual = index - self.first_residual
            tokens = outputs if residual < 0 else tokens + self.scales[residual] * outputs
            last.append(layer_states)
        return tokens.transpose(0, 1), last


class RecurrentStep(nn.Module):
    """Streaming form of a unidirectional `Recurrent` encoder (see `SequenceEncoder.streaming`)."""

    def __init__(self, recurrent: Recurrent):
        super().__init__()
        self.stack = OnnxRecurrent(recurrent)
        names = STATE_NAMES[recurrent.cell.upper()]
        layers = range(len(self.stack.layers))
        self.states = [State(f"{name}_{layer}", (recurrent.size,)) for layer in layers for name in names]

    def forward(self, tokens: Tensor, lengths: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        # The ONNX operators need states of shape (1, B, size). The first axis is the direction.
        with_directions = [state[None] for state in states]
        count = len(self.states) // len(self.stack.layers)
        by_layer = [with_directions[start : start + count] for start in range(0, len(states), count)]
        outputs, last = self.stack.run(tokens, lengths, by_layer)
        return outputs, [state[0] for layer_states in last for state in layer_states]


class _MaskedRecurrent(nn.Module):
    cell: ClassVar[CellName]

    def __init__(
        self,
        input_size: int,
        hidden_size: Count,
        *,
        layers: Count = 1,
        bidirectional: bool = False,
        dropout: DropoutShare = 0.0,
    ):
        super().__init__()
        options: Any = {"layers": layers, "bidirectional": bidirectional, "dropout": dropout}
        self.stack = Recurrent(input_size, cell=self.cell, hidden_size=hidden_size, **options)
        self.size, self.backward_size = self.stack.size, self.stack.backward_size
        self.last = Pooling("last", self.size, self.backward_size)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T, `size`) and last states (B, `size`). `lengths`: (B,) int64, at least 1."""
        inside = token_mask(lengths, tokens.shape[1])[..., None]
        # Padding may be NaN, which would reach the gradients of the weights.
        outputs, _, _ = self.stack(torch.where(inside, tokens, 0.0), lengths, None)
        return torch.where(inside, outputs, 0.0), self.last(outputs, lengths)


class MaskedLSTM(_MaskedRecurrent):
    """LSTM that reads no padding, as `nn.LSTM` of packed tokens does not, and that exports to ONNX.

    On CPUs, it trains several times as fast as `nn.LSTM` of packed tokens, which oneDNN does not support. `input_size`:
    channels of a token. `hidden_size`: units of each layer and direction. `bidirectional`: True for a second direction,
    which reads from the last token to the first one, and makes the last `backward_size` of the `size` channels of an
    output. `dropout`: probability of zeroing a feature of a token between two layers. The outputs at padding are zero.
    The last state is that of the last layer after the last token that each direction has read.

    >>> lstm = MaskedLSTM(3, 8, bidirectional=True)
    >>> outputs, last = lstm(torch.randn(2, 5, 3), torch.tensor([5, 2]))
    >>> outputs.shape, last.shape, outputs[1, 2:].any().item()
    (torch.Size([2, 5, 16]), torch.Size([2, 16]), False)
    """

    cell = "lstm"


class MaskedGRU(_MaskedRecurrent):
    """GRU that reads no padding and that exports to ONNX. Arguments and results are those of `MaskedLSTM`.

    >>> outputs, last = MaskedGRU(3, 8, layers=2)(torch.randn(2, 5, 3), torch.tensor([5, 2]))
    >>> torch.equal(last[1], outputs[1, 1])
    True
    """

    cell = "gru"
