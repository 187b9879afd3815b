"""Export of a recurrent layer, both directions, as one ONNX operator: LSTM, GRU or RNN.

PyTorch's exporter writes separate nodes for each token of the example input of an `nn.RNN`. The weights are put into
the order of ONNX before the export, which saves some 40 Split and Concat nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# For each block of gate weights in the order of ONNX, the index of the block in PyTorch: ifgo → iofc, rzn → zrh.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
STATE_NAMES = {"LSTM": ("hidden", "cell"), "GRU": ("hidden",), "RNN": ("hidden",)}
OPSET = 18
# dict input of an ONNX operator → PyTorch weights that are concatenated to this input
PARTS = {"weight": ["weight_ih"], "recurrence": ["weight_hh"], "bias": ["bias_ih", "bias_hh"]}


def reorder_gates(operator: str, weight: Tensor) -> Tensor:
    """Return a PyTorch weight or bias (gates * hidden, …) with the blocks of the gates in the order of ONNX."""
    blocks = weight.detach().chunk(len(GATES[operator]))
    return torch.cat([blocks[gate] for gate in GATES[operator]])


class OnnxLayer(nn.Module):
    """A recurrent layer as one ONNX operator. The method `forward` runs only inside the ONNX exporter.

    `directions`: the PyTorch modules of the forward and, optionally, the backward direction, of one layer each.
    """

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, directions: Sequence[nn.RNNBase]):
        super().__init__()
        module = directions[0]
        self.operator = module.mode.partition("_")[0]  # the mode of an nn.RNN is RNN_TANH
        count = len(directions)
        direction = "bidirectional" if count == 2 else "forward"
        self.attributes: dict[str, Any] = {"direction": direction, "hidden_size": module.hidden_size}
        if self.operator == "GRU":
            self.attributes["linear_before_reset"] = 1  # PyTorch applies the reset gate after the linear layer
        self.state_shape = (count, module.hidden_size)
        for name, parts in PARTS.items():
            self.register_buffer(name, torch.stack([self._join(module, parts) for module in directions]))

    def _join(self, module: nn.RNNBase, parts: Sequence[str]) -> Tensor:
        return torch.cat([reorder_gates(self.operator, getattr(module, f"{part}_l0")) for part in parts])

    def forward(
        self, tokens: Tensor, lengths: Tensor, states: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return outputs (T, B, directions * hidden) and the final states, each of shape (directions, B, hidden).

        `tokens`: (T, B, input). `lengths`: (B,). `states`: initial states, or () to start from zeros.
        """
        time, batch = tokens.shape[0], tokens.shape[1]
        count, hidden = self.state_shape
        shapes = [(time, count, batch, hidden)] + [(count, batch, hidden)] * len(STATE_NAMES[self.operator])
        outputs, *last = torch.onnx.ops.symbolic_multi_out(
            self.operator,
            (tokens, self.weight, self.recurrence, self.bias, lengths.to(torch.int32), *states),
            attrs=self.attributes,
            dtypes=[torch.float32] * len(shapes),
            shapes=shapes,
            version=OPSET,
        )
        return outputs.transpose(1, 2).flatten(2), last
