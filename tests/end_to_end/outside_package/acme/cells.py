"""Recurrent cells: one token of B sequences (B, `input_size`) and states → outputs (B, `size`) and new states."""

import torch
from torch import nn

from seqclf.extend import Count, RecurrentCell, Share, State


class Associative(RecurrentCell):
    """Writes outer products of values and keys into a matrix that fades, and reads it by a query."""

    def __init__(self, input_size, hidden_size, *, keys: Count = 8, fading: Share = 0.1):
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


class DeltaRule(RecurrentCell):
    """Fast weights (Schlag et al. 2021): a matrix (keys, values) learns by the delta rule what belongs to a key."""

    def __init__(self, input_size, hidden_size, *, keys: Count = 4):
        super().__init__()
        self.size = hidden_size
        self.states = [State("memory", (keys, hidden_size))]
        self.sizes = [keys, keys, hidden_size, 1]
        self.linear = nn.Linear(input_size, sum(self.sizes))

    def step(self, inputs, state):
        key, query, value, rate = self.linear(inputs).split(self.sizes, dim=-1)
        key, query = key.softmax(dim=-1), query.softmax(dim=-1)
        known = torch.einsum("bk,bkv->bv", key, state["memory"])
        written = torch.einsum("bk,bv->bkv", key, rate.sigmoid() * (value - known))
        memory = state["memory"] + written
        return torch.einsum("bk,bkv->bv", query, memory), {"memory": memory}
