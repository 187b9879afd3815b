"""Recurrent cells of another package, for tests of `CellEncoder`."""

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
    """A fast weight memory: a matrix of gated outer products, a running count from 1, and what was read last.

    Its layer has a name that ONNX uses for nodes. No layer norm, which would multiply rounding errors.
    """

    def __init__(self, input_size, hidden_size, *, keys=4):
        super().__init__()
        self.size = hidden_size
        self.states = [State("memory", (hidden_size, keys)), State("count", (), 1.0), State("hidden", (hidden_size,))]
        self.linear_2 = nn.Linear(input_size + hidden_size, hidden_size + 2 * keys + 1)
        self.parts = [hidden_size, keys, keys, 1]

    def step(self, inputs, state):
        value, key, query, gate = self.linear_2(torch.cat([inputs, state["hidden"]], dim=-1)).split(self.parts, dim=-1)
        forget = gate.sigmoid()
        count = forget[:, 0] * state["count"] + 1
        memory = forget[..., None] * state["memory"] + value.tanh()[..., None] * functional.softmax(key, -1)[:, None]
        hidden = (value + (memory @ query[..., None])[..., 0] / count[:, None]).tanh()
        return hidden, {"hidden": hidden, "memory": memory, "count": count}


CELLS = {"gru": GRU, "matrix": MatrixMemory}
