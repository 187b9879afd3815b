"""Export of recurrent layers as ONNX operators.

PyTorch's exporter writes separate nodes for each token of the example input of an `nn.RNN`. Each recurrent layer is
therefore replaced by one equivalent ONNX operator: LSTM, GRU or RNN. The operator computes both directions of the
layer. ONNX needs another order of the weights. The weights are reordered before the export, because reordering during
the export would add some 40 Split and Concat nodes to the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seqclf.errors import InputError
from seqclf.models.onnx.replaced_code import is_replacing, original_of

# For each block of gate weights in the order of ONNX, the index of the block in PyTorch: ifgo → iofc, rzn → zrh.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
STATE_NAMES = {"LSTM": ("hidden", "cell"), "GRU": ("hidden",), "RNN": ("hidden",)}
OPSET = 18
# dict input of an ONNX operator → PyTorch weights that are concatenated to this input
PARTS = {"weight": ["weight_ih"], "recurrence": ["weight_hh"], "bias": ["bias_ih", "bias_hh"]}
RECURRENT = "seqclf.models.recurrent.Recurrent"  # an encoder that can be exported and skips padding
PROJECTION = "set it to 0 and project the outputs by an nn.Linear, or set export=false"
KINDS = (nn.LSTM, nn.GRU, nn.RNN)


def reorder_gates(operator: str, weight: Tensor) -> Tensor:
    """Return a PyTorch weight or bias (gates * hidden, …) with the blocks of the gates in the order of ONNX."""
    blocks = weight.detach().chunk(len(GATES[operator]))
    return torch.cat([blocks[gate] for gate in GATES[operator]])


class OnnxLayer(nn.Module):
    """A recurrent layer as one ONNX operator. The method `forward` runs only inside the ONNX exporter.

    `directions`: one or two directions. Each direction is a PyTorch module and the suffix of the names of its weights.
    """

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, directions: Sequence[tuple[nn.RNNBase, str]]):
        super().__init__()
        module = directions[0][0]
        # The mode of an nn.RNN includes the activation: RNN_TANH or RNN_RELU.
        self.operator, _, activation = module.mode.partition("_")
        count = len(directions)
        self.attributes: dict[str, Any] = {
            "direction": "bidirectional" if count == 2 else "forward",
            "hidden_size": module.hidden_size,
        }
        if self.operator == "GRU":
            self.attributes["linear_before_reset"] = 1  # PyTorch applies the reset gate after the linear layer
        if activation == "RELU":
            self.attributes["activations"] = ["Relu"] * count
        self.state_shape = (count, module.hidden_size)
        for name, parts in PARTS.items():
            directions_of_part = [self._join(module, suffix, parts) for module, suffix in directions]
            self.register_buffer(name, torch.stack(directions_of_part))

    @classmethod
    def of_modules(cls, modules: Sequence[nn.RNNBase]) -> OnnxLayer:
        """Return one operator for the module of the forward direction and an optional module of the backward direction.

        Each module has a single layer.
        """
        return cls([(module, "l0") for module in modules])

    def _join(self, module: nn.RNNBase, suffix: str, parts: Sequence[str]) -> Tensor:
        hidden = module.hidden_size * len(GATES[self.operator])
        # Get each weight as an attribute of the module, because a parametrized weight is computed when the attribute is
        # read.
        weights = [getattr(module, f"{part}_{suffix}", torch.zeros(hidden)) for part in parts]
        return torch.cat([reorder_gates(self.operator, weight) for weight in weights])

    def forward(
        self, tokens: Tensor, lengths: Tensor | None, states: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return outputs (T, B, directions * hidden) and the final states, each of shape (directions, B, hidden).

        `tokens`: (T, B, input). `lengths`: (B,), or `None` to also read the padding. `states`: initial states, or () to
        start from zeros.
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


def is_stack(module: nn.Module) -> bool:
    """Return True if a module is an `nn.LSTM`, `nn.GRU` or `nn.RNN`, or of a subclass."""
    return isinstance(module, KINDS)


def use_operators(module: nn.RNNBase, path: str) -> None:
    """Make a recurrent module compute its outputs by ONNX operators while it is exported, in place.

    The module remains an instance of its class, because other code may check the class. The `forward` of `nn.LSTM`,
    `nn.GRU` and `nn.RNN` is replaced (see `FORWARDS`), also where the `forward` of a subclass calls it. `path`: name of
    the module in the network, which error messages contain.
    """
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    module.onnx_layers = nn.ModuleList(
        OnnxLayer([(module, f"l{layer}{suffix}") for suffix in suffixes]) for layer in range(module.num_layers)
    )
    module.onnx_name = f"{path} ({type(module).__name__})"


def forward(module: Any, input: Tensor | PackedSequence, hx: Any) -> tuple[Any, Any]:
    """Return the outputs and the last states of an `nn.LSTM`, `nn.GRU` or `nn.RNN`, by ONNX operators if it has them.

    As in PyTorch, the operators read the padding of a tensor, and not that of a `PackedSequence` (see
    `seqclf.models.onnx.packing`).
    """
    if not (is_replacing() and hasattr(module, "onnx_layers")):
        kind = next(kind for kind in KINDS if isinstance(module, kind))
        return _ORIGINALS[kind](module, input, hx)
    if module.proj_size:
        # With proj_size, a state has fewer channels than a gate. The ONNX operators do not support such states. The
        # check is in this function, because the function does not run for a module that has its own `onnx_form`.
        raise InputError(module.onnx_name, "has a proj_size, which ONNX lacks", PROJECTION)
    if isinstance(input, PackedSequence):
        outputs, last = _run_operators(module, input.data, input.batch_sizes, hx)
        return input._replace(data=outputs), last
    if input.dim() != 3:
        raise InputError(module.onnx_name, "gets tokens without a batch axis", "add it by unsqueeze")
    outputs, last = _run_operators(module, input.transpose(0, 1) if module.batch_first else input, None, hx)
    return (outputs.transpose(0, 1) if module.batch_first else outputs), last


def _run_operators(module: Any, tokens: Tensor, lengths: Tensor | None, hx: Any) -> tuple[Tensor, Any]:
    """Return the outputs (T, B, directions * hidden) and the last states, as PyTorch's modules return them."""
    initial = () if hx is None else hx if isinstance(hx, (tuple, list)) else (hx,)
    last = []
    for index, layer in enumerate(module.onnx_layers):
        count = layer.state_shape[0]
        states = [state[index * count : (index + 1) * count] for state in initial]
        tokens, last_states = layer(tokens, lengths, states)
        last.append(last_states)
    joined = tuple(torch.cat(states) for states in zip(*last, strict=True))
    return tokens, joined if len(joined) > 1 else joined[0]


def _forward_code(self: Any, input: Any, hx: Any) -> Any:
    # The code runs in the global names of torch.nn.modules.rnn, so it imports what it needs.
    from seqclf.models.onnx.layers import forward

    return forward(self, input, hx)


FORWARDS = {kind.forward: _forward_code for kind in KINDS}
_ORIGINALS = {kind: original_of(kind.forward) for kind in KINDS}
