"""Recurrent cells: one token of B sequences (B, `input_size`) and states → outputs (B, `size`) and new states."""

import torch
from torch import nn

from seqclf.extend import RecurrentCell, Share, State


class Associative(RecurrentCell):
    """Writes outer products of values and keys into a matrix that fades, and reads it by a query."""

    def __init__(self, input_size, hidden_size, *, keys=8, fading: Share = 0.1):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,)), State("memory", (hidden_size, keys)), State("count", ())]
        self.sizes = [hidden_size, keys, keys]
        self.fading = fading
        self.linear = nn.Linear(input_size + hidden_size, sum(self.sizes))

    def step(self, inputs, state):
        parts = self.linear(torch.cat([inputs, state["hidden"]], dim=-1)).split(self.sizes, dim=-1)
        value, key, query = parts
        written = value.tanh()[:, :, None] * key.softmax(dim=-1)[:, None, :]
        memory = (1 - self.fading) * state["memory"] + written
        count = (1 - self.fading) * state["count"] + 1  # the weight of all that was written
        read = (memory @ query[:, :, None])[:, :, 0] / count[:, None]
        hidden = (value + read).tanh()
        return hidden, {"hidden": hidden, "memory": memory, "count": count}
