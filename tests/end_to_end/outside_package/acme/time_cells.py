"""Recurrent cells that read the time between tokens."""

import torch
from torch import nn

from seqclf.extend import RecurrentCell, State


class Forgetful(RecurrentCell):
    """An LSTM. The longer the gap before a token, the less of its short-term memory is left."""

    def __init__(self, input_size, hidden_size, *, gap):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,)), State("memory", (hidden_size,))]
        self.fields = [gap]
        self.short_term = nn.Linear(hidden_size, hidden_size)
        self.lstm = nn.LSTMCell(input_size, hidden_size)

    def step(self, inputs, state, gap):
        short = self.short_term(state["memory"]).tanh()
        left = torch.sigmoid(-gap[:, :1])  # a time field is a standardised log gap
        memory = state["memory"] - short + left * short
        hidden, memory = self.lstm(inputs, (state["hidden"], memory))
        return hidden, {"hidden": hidden, "memory": memory}
