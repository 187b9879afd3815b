"""Export of a trained classifier to `model.onnx`, with free batch and time axes and lengths as an input.

PyTorch's exporter refuses packed sequences and would unroll or fix a padded loop. So each layer is exported as the one
ONNX operator that means the same: LSTM, GRU or RNN with `sequence_lens`, in both directions at once. Its weights are
reordered before tracing, else some 40 Split and Concat nodes would stay in the graph.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from seqclf.data.encoding.field_spec import FieldSpec, input_axes
from seqclf.models.recurrent import Recurrent

# Gate blocks of PyTorch's weights in the order of ONNX: ifgo → iofc, rzn → zrh.
GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
# Not 1, which the exporter would take for a fixed size.
EXAMPLE_BATCH, EXAMPLE_TIME, EXAMPLE_VALUES = 2, 3, 4


class OnnxLayer(nn.Module):
    """One layer, in one or both directions, as one ONNX operator. Runs only inside the exporter."""

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, cell: str, directions: Sequence[nn.RNNBase]):
        super().__init__()
        self.cell = cell
        self.hidden_size = directions[0].hidden_size
        self.count = len(directions)
        # Each direction has input weights, recurrent weights and two biases.
        parts = zip(
            *([self._reorder_gates(part) for part in module.parameters()] for module in directions), strict=True
        )
        weight, recurrence, input_bias, recurrent_bias = (torch.stack(part) for part in parts)
        self.register_buffer("weight", weight)
        self.register_buffer("recurrence", recurrence)
        self.register_buffer("bias", torch.cat([input_bias, recurrent_bias], dim=1))

    def _reorder_gates(self, weight: Tensor) -> Tensor:
        blocks = weight.detach().chunk(len(GATES[self.cell]))
        return torch.cat([blocks[gate] for gate in GATES[self.cell]])

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        batch, time = tokens.shape[0], tokens.shape[1]
        attributes: dict[str, Any] = {
            "direction": "bidirectional" if self.count == 2 else "forward",
            "hidden_size": self.hidden_size,
        }
        if self.cell == "gru":
            attributes["linear_before_reset"] = 1  # as PyTorch applies the reset gate
        state = (self.count, batch, self.hidden_size)
        shapes = [(time, self.count, batch, self.hidden_size)] + [state] * (2 if self.cell == "lstm" else 1)
        outputs = torch.onnx.ops.symbolic_multi_out(
            self.cell.upper(),
            (tokens.transpose(0, 1), self.weight, self.recurrence, self.bias, lengths.to(torch.int32)),
            attrs=attributes,
            dtypes=[torch.float32] * len(shapes),
            shapes=shapes,
            version=18,
        )[0]
        return outputs.permute(2, 0, 1, 3).flatten(2)


class OnnxRecurrent(nn.Module):
    """`Recurrent` as ONNX operators."""

    def __init__(self, recurrent: Recurrent):
        super().__init__()
        directions = [recurrent.forward_layers]
        if recurrent.backward_layers:
            directions.append(recurrent.backward_layers)
        layers: Iterable[Any] = zip(*directions, strict=True)
        self.layers = nn.ModuleList(OnnxLayer(recurrent.cell, modules) for modules in layers)

    def forward(self, tokens: Tensor, lengths: Tensor, host_lengths: Any) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens, lengths)
        return tokens


class _Exported(nn.Module):
    def __init__(self, classifier: nn.Module):
        super().__init__()
        self.classifier = classifier

    def forward(self, fields: dict[str, Tensor], lengths: Tensor) -> Tensor:
        return self.classifier(fields, lengths, None)


def example_inputs(
    fields: Sequence[FieldSpec], lengths: np.ndarray, time: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return random inputs of every field for `lengths` (B,) in a batch padded to `time` tokens.

    Padding holds random values too, so that a model that reads it gives itself away.
    """
    inputs: dict[str, np.ndarray] = {}
    for field in fields:
        shape = (len(lengths), time)
        if field["kind"] == "number":
            inputs[field["name"]] = generator.standard_normal((*shape, field["width"]), np.float32)
            continue
        several = (EXAMPLE_VALUES,) if field["kind"] == "bag" else ()
        inputs[field["name"]] = generator.integers(0, field["size"], (*shape, *several))
    return {**inputs, "lengths": lengths.astype(np.int64)}


def export_onnx(classifier: nn.Module, fields: Sequence[FieldSpec], path: Path) -> None:
    """Write a classifier or an ensemble to `path`, in evaluation mode and float32. The classifier itself is unchanged.

    Inputs: one per field (see `FieldSpec`), and `lengths` (batch,) int64.
    Output: `logits` (batch, classes).
    """
    exported = copy.deepcopy(classifier).cpu().float().eval()
    for module in list(exported.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Recurrent):
                setattr(module, name, OnnxRecurrent(child))
    lengths = np.array([EXAMPLE_TIME, EXAMPLE_TIME - 1])
    inputs = example_inputs(fields, lengths, EXAMPLE_TIME, np.random.default_rng(0))
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    axes = {"batch": Dim("batch"), "time": Dim("time")}
    names = [field["name"] for field in fields]
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Exported(exported).eval(),
                ({name: tensors[name] for name in names}, tensors["lengths"]),
                dynamo=True,
                input_names=[*names, "lengths"],
                output_names=["logits"],
                dynamic_shapes=({field["name"]: _free_axes(field, axes) for field in fields}, {0: axes["batch"]}),
                opset_version=18,
                verbose=False,
            )
    finally:
        exporter_log.setLevel(level)
    assert program is not None
    _prefix_inner_names(program.model.graph)
    program.save(str(path), external_data=False)


def _free_axes(field: FieldSpec, shared: Mapping[str, Any]) -> dict[int, Any]:
    """The axes of an input whose size is free: batch and time, `shared` by all fields, and the values of a bag."""
    names = [name for name in input_axes(field) if isinstance(name, str)]
    return {axis: shared.get(name) or Dim(name) for axis, name in enumerate(names)}


def _prefix_inner_names(graph: Any) -> None:
    """Begin all names but those of inputs and outputs with a slash.

    The exporter names values like `embedding`, which could be the name of a field too.
    """
    outer = {*graph.inputs, *graph.outputs}
    inner = [value for node in graph for value in node.outputs if value not in outer]
    for value in [*inner, *graph.initializers.values()]:
        if value.name:
            value.name = f"/{value.name}"
