"""Recurrent cells of another package, for tests of `CellRecurrent`."""

import torch
from torch import nn
from torch.nn import functional

from seqclf.extend import RecurrentCell, State


class GRU(RecurrentCell):
    """The cell of `nn.GRU`, with the names and shapes of its weights."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,))]
        self.cell = nn.GRUCell(input_size, hidden_size)

    def step(self, inputs, state):
        hidden = self.cell(inputs, state["hidden"])
        return hidden, {"hidden": hidden}


class MatrixMemory(RecurrentCell):
    """A fast weight memory: a matrix with gated outer products, a running count and a normalized reading.

    Its modules have names that ONNX uses for nodes.
    """

    def __init__(self, input_size, hidden_size, *, keys=4):
        super().__init__()
        self.size = hidden_size
        self.states = [State("memory", (hidden_size, keys)), State("weight", (), 1.0), State("hidden", (hidden_size,))]
        self.linear_2 = nn.Linear(input_size + hidden_size, hidden_size + 2 * keys + 1)
        self.norm = nn.LayerNorm(hidden_size)
        self.parts = [hidden_size, keys, keys, 1]

    def step(self, inputs, state):
        value, key, query, gate = self.linear_2(torch.cat([inputs, state["hidden"]], dim=-1)).split(self.parts, dim=-1)
        forget = gate.sigmoid()
        weight = forget[:, 0] * state["weight"] + 1
        value = self.norm(value)
        memory = forget[..., None] * state["memory"] + value[..., None] * functional.softmax(key, -1)[:, None]
        hidden = ((memory @ query[..., None])[..., 0] / weight[:, None]).tanh()
        return hidden, {"hidden": hidden, "memory": memory, "weight": weight}


CELLS = {"gru": GRU, "matrix": MatrixMemory}
