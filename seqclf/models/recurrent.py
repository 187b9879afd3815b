"""Stacks of recurrent layers over sequences of different lengths, exact in either layout.

Every layer and direction is a single-layer, unidirectional module, because only those reach cuDNN's persistent
kernels; the backward direction is a second such module over inputs flipped within each length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.errors import InputError
from seqclf.models.dropout import StepDropout

CELLS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
LAYOUTS = ("auto", "padded", "packed")


def flip_order(lengths: Tensor, time: int) -> Tensor:
    """(B, T) int64: the step to read at each place so that a sequence runs backwards and its padding stays."""
    steps = torch.arange(time, device=lengths.device)
    return torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)


class Recurrent(nn.Module):
    """(B, T, `input_size`) and lengths (B,) → (B, T, `size`); outputs beyond a length are not to be read.

    Layouts compute the same function: `padded` runs over the padding too and is by far the faster on batches of
    similar length, `packed` leaves it out; `auto` is `padded`.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        layers: int,
        bidirectional: bool,
        dropout: float,
        variational: bool,
        layout: str,
    ):
        super().__init__()
        if cell not in CELLS:
            raise InputError(f"model.cell={cell}: must be one of {', '.join(CELLS)}")
        if layout not in LAYOUTS:
            raise InputError(f"model.layout={layout}: must be one of {', '.join(LAYOUTS)}")
        if hidden_size < 1 or layers < 1:
            raise InputError(f"model.hidden_size={hidden_size}, model.layers={layers}: must be at least 1")
        self.cell = cell
        self.layout = layout
        self.size = hidden_size * (2 if bidirectional else 1)
        self.backward_size = hidden_size if bidirectional else 0
        self.dropout = StepDropout(dropout, variational)
        sizes = [input_size] + [self.size] * (layers - 1)
        self.ahead = nn.ModuleList(CELLS[cell](size, hidden_size, batch_first=True) for size in sizes)
        self.back = nn.ModuleList(CELLS[cell](size, hidden_size, batch_first=True) for size in sizes if bidirectional)

    def forward(self, steps: Tensor, lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        order = flip_order(lengths, steps.shape[1]) if self.back else None
        for layer, ahead in enumerate(self.ahead):
            if layer:
                steps = self.dropout(steps)
            outputs = self._run(ahead, steps, host_lengths)
            if order is not None:
                flipped = self._run(self.back[layer], _reorder(steps, order), host_lengths)
                outputs = torch.cat([outputs, _reorder(flipped, order)], dim=-1)
            steps = outputs
        return steps

    def _run(self, module: nn.Module, steps: Tensor, host_lengths: np.ndarray) -> Tensor:
        if self.layout != "packed":
            return module(steps)[0]
        packed = pack_padded_sequence(steps, torch.from_numpy(host_lengths), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0], batch_first=True, total_length=steps.shape[1])[0]


def _reorder(steps: Tensor, order: Tensor) -> Tensor:
    return steps.gather(1, order[..., None].expand(-1, -1, steps.shape[-1]))
