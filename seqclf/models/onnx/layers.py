"""Recurrent layers as ONNX operators.

PyTorch's exporter refuses packed sequences and unrolls `nn.RNN` over the tokens of its example. So a layer is exported
as the one ONNX operator that means the same: LSTM, GRU or RNN, in both directions at once. Its weights are reordered
before tracing, else some 40 Split and Concat nodes would stay in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.errors import InputError

# Gate blocks of PyTorch's weights in the order of ONNX: ifgo → iofc, rzn → zrh.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
STATE_NAMES = {"LSTM": ("hidden", "cell"), "GRU": ("hidden",), "RNN": ("hidden",)}
OPSET = 18
# Inputs of the operators, and PyTorch's weights that they join.
PARTS = {"weight": ["weight_ih"], "recurrence": ["weight_hh"], "bias": ["bias_ih", "bias_hh"]}
RECURRENT = "seqclf.models.recurrent.Recurrent"  # packs by itself and skips the padding in ONNX too
PROJECTION = "set it to 0 and project the outputs by an nn.Linear, or set export=false"
FORWARDS = (nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward)


def reorder_gates(operator: str, weight: Tensor) -> Tensor:
    """Return a weight matrix or bias of PyTorch, (gates * hidden, …), with its gates in the order of ONNX."""
    blocks = weight.detach().chunk(len(GATES[operator]))
    return torch.cat([blocks[gate] for gate in GATES[operator]])


class OnnxLayer(nn.Module):
    """Layer number `layer` of PyTorch's modules as one ONNX operator. Runs only inside the exporter.

    `directions`: the module and the suffix of its weights, of one or both directions.
    """

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, directions: Sequence[tuple[nn.RNNBase, str]]):
        super().__init__()
        module = directions[0][0]
        # Of an RNN the mode names its activation too: RNN_TANH or RNN_RELU.
        self.operator, _, activation = module.mode.partition("_")
        count = len(directions)
        self.attributes: dict[str, Any] = {
            "direction": "bidirectional" if count == 2 else "forward",
            "hidden_size": module.hidden_size,
        }
        if self.operator == "GRU":
            self.attributes["linear_before_reset"] = 1  # as PyTorch applies the reset gate
        if activation == "RELU":
            self.attributes["activations"] = ["Relu"] * count
        self.state_shape = (count, module.hidden_size)
        for name, parts in PARTS.items():
            directions_of_part = [self._join(module, suffix, parts) for module, suffix in directions]
            self.register_buffer(name, torch.stack(directions_of_part))

    @classmethod
    def of_modules(cls, modules: Sequence[nn.RNNBase]) -> OnnxLayer:
        """Return the layer of two modules of one layer and one direction each, or of the first alone."""
        return cls([(module, "l0") for module in modules])

    def _join(self, module: nn.RNNBase, suffix: str, parts: Sequence[str]) -> Tensor:
        hidden = module.hidden_size * len(GATES[self.operator])
        # Looked up by name, because a parametrized weight is computed when it is read.
        weights = [getattr(module, f"{part}_{suffix}", torch.zeros(hidden)) for part in parts]
        return torch.cat([reorder_gates(self.operator, weight) for weight in weights])

    def forward(
        self, tokens: Tensor, lengths: Tensor | None, states: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return outputs (T, B, directions * hidden) and the last states, each (directions, B, hidden).

        `tokens`: (T, B, input). `lengths`: (B,), None to read all tokens. `states`: initial ones, () for zeros.
        """
        time, batch = tokens.shape[0], tokens.shape[1]
        count, hidden = self.state_shape
        shapes = [(time, count, batch, hidden)] + [(count, batch, hidden)] * len(STATE_NAMES[self.operator])
        ends = None if lengths is None else lengths.to(torch.int32)
        outputs, *last = torch.onnx.ops.symbolic_multi_out(
            self.operator,
            (tokens, self.weight, self.recurrence, self.bias, ends, *states),
            attrs=self.attributes,
            dtypes=[torch.float32] * len(shapes),
            shapes=shapes,
            version=OPSET,
        )
        return outputs.transpose(1, 2).flatten(2), last


class OnnxStack(nn.Module):
    """Forward of an `nn.LSTM`, `nn.GRU` or `nn.RNN` in ONNX operators, see `use_operators`.

    Like PyTorch's it reads the padding too, and returns the outputs and the last states.
    """

    onnx_layers: nn.ModuleList
    onnx_name: str
    batch_first: bool
    proj_size: int

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        if not isinstance(input, Tensor):
            raise InputError(self.onnx_name, "gets a PackedSequence", f"give it the padded tokens, or use {RECURRENT}")
        if self.proj_size:
            # The state is narrower than the gates. PyTorch's exporter writes an LSTM all the same, which no runtime
            # loads, so it is refused by name. Not before it runs, because the module may bring an `onnx_form`.
            raise InputError(self.onnx_name, "has a proj_size, which ONNX lacks", PROJECTION)
        if input.dim() != 3:
            raise InputError(self.onnx_name, "gets tokens without a batch axis", "add it by unsqueeze")
        tokens = input.transpose(0, 1) if self.batch_first else input
        initial = () if hx is None else hx if isinstance(hx, (tuple, list)) else (hx,)
        last = []
        for index, layer in enumerate(self.onnx_layers):
            count = layer.state_shape[0]  # type: ignore[index]
            states = [state[index * count : (index + 1) * count] for state in initial]
            tokens, last_states = layer(tokens, None, states)
            last.append(last_states)
        joined = tuple(torch.cat(states) for states in zip(*last, strict=True))
        outputs = tokens.transpose(0, 1) if self.batch_first else tokens
        return outputs, joined if len(joined) > 1 else joined[0]


def is_stack(module: nn.Module) -> bool:
    """Return True for a module that `use_operators` takes: a recurrent one with PyTorch's forward."""
    return isinstance(module, nn.RNNBase) and type(module).forward in FORWARDS


def use_operators(module: nn.RNNBase, path: str) -> None:
    """Let a module compute by ONNX operators from now on. `path`: its name in its network, for errors.

    It stays of its class, because the code around it may ask for that, read its settings, or flatten its weights.
    """
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    module.onnx_layers = nn.ModuleList(
        OnnxLayer([(module, f"l{layer}{suffix}") for suffix in suffixes]) for layer in range(module.num_layers)
    )
    kind = type(module)
    module.onnx_name = f"{path} ({kind.__name__})"
    module.__class__ = type(kind.__name__, (OnnxStack, kind), {})
