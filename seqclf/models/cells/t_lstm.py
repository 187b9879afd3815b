"""Time-aware LSTM cell, which forgets more of its short-term memory after a longer gap between two tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.models.options import FieldName
from seqclf.models.rnn.recurrent_cell import RecurrentCell
from seqclf.models.streaming import State
from seqclf.settings.base import Count


class TimeLSTM(RecurrentCell):
    """LSTM cell that discounts its short-term memory by the time since the previous token.

    With the memory c and the hidden state h after the previous token, and the gap z of the token:

        s = tanh(W c + b)                      short-term memory
        g = sigmoid(offset - softplus(rate) z) decreases with the gap, one factor for each unit
        c* = c - s + g s                       the long-term memory c - s stays
        h', c' = LSTM(inputs, (h, c*))

    `gap`: name of a time field, or of a numeric field whose first channel is the gap. Both states and the output are
    (B, `hidden_size`).

    Reference: Baytas et al. 2017, "Patient Subtyping via Time-Aware LSTM Networks". seqclf encodes a gap as a
    standardized logarithm, so a learned decreasing function of z replaces the 1 / log(e + gap) of the paper.

    >>> cell = TimeLSTM(5, 8, gap="seconds")
    >>> state = {"hidden": torch.zeros(2, 8), "memory": torch.ones(2, 8)}
    >>> output, state = cell.step(torch.zeros(2, 5), state, torch.tensor([[0.0], [2.0]]))
    >>> output.shape
    torch.Size([2, 8])
    """

    def __init__(self, input_size: int, hidden_size: Count, *, gap: FieldName):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,)), State("memory", (hidden_size,))]
        self.fields = (gap,)
        self.short_term = nn.Linear(hidden_size, hidden_size)
        self.rate = nn.Parameter(torch.zeros(hidden_size))
        self.offset = nn.Parameter(torch.zeros(hidden_size))
        self.lstm = nn.LSTMCell(input_size, hidden_size)

    def step(  # type: ignore[override]
        self, inputs: Tensor, state: Mapping[str, Tensor], gap: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """See `RecurrentCell.step`. `gap`: (B, width) encoded gaps, of which the first channel is read."""
        short = self.short_term(state["memory"]).tanh()
        kept = torch.sigmoid(self.offset - functional.softplus(self.rate) * gap[:, :1])
        hidden, memory = self.lstm(inputs, (state["hidden"], state["memory"] - short + kept * short))
        return hidden, {"hidden": hidden, "memory": memory}
