"""ONNX functions with loops over tokens or levels of trees, and the form of a `RunningMax` that calls one in an export.

ONNX has no operator for a running maximum, and PyTorch's exporter supports no loop whose tensors change their size. So
these functions are called, and then inlined. Only an export imports this module, as it needs onnxscript.
"""
# mypy: ignore-errors
# onnxscript converts the source code of the functions to ONNX graphs. Python never runs the functions.

from __future__ import annotations

from typing import Any

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op
from onnxscript.values import Opset
from torch import Tensor, nn

DOMAIN, VERSION = "seqclf", 1
_opset = Opset(DOMAIN, VERSION)


# fmt: off
@script(_opset, default_opset=op)
def RunningMaximum(values):  # noqa: N802 # pragma: no cover
    @graph()
    def larger(highest, token):
        new = op.Max(highest, token)
        return new, op.Identity(new)

    first = op.Gather(values, op.Constant(value_int=0), axis=1)
    _, highest = op.Scan(first, values, body=larger, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])
    return highest
# fmt: on


class OnnxRunningMax(nn.Module):
    """A `RunningMax` in operations that ONNX has. The method `forward` runs only inside the ONNX exporter."""

    onnx_function = RunningMaximum

    def forward(self, outputs: Tensor) -> Tensor:
        return torch.onnx.ops.symbolic(
            f"{DOMAIN}::{RunningMaximum.name}", (outputs,), dtype=torch.float32, shape=outputs.shape, version=VERSION
        )


# The arguments of the next two functions are the weights and biases of the gates, and `tokens`: (N, D) sorted by depth;
# `begins`: index of the first node of each depth; `inner`: number of inner nodes of each depth; `levels`: number of
# levels; `slots`: see `ChildSumCell`. They return the states of the roots. Numbers are `Constant` nodes, because ONNX
# Runtime warns about the `CastLike` of a Python number. The functions repeat some code, because a common helper
# function would become another ONNX function in the graph.
# fmt: off
@script(_opset, default_opset=op)
def ChildSumLevels(tokens, weight, bias, hidden, forget, begins, inner, levels, slots):  # noqa: N802 # pragma: no cover
    zero = op.Constant(value_ints=[0])
    one = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    four = op.Constant(value_ints=[4])
    single = op.Constant(value_int=1)
    size = op.Shape(forget, start=0, end=1)
    states = op.ConstantOfShape(op.Concat(zero, size, axis=0))
    cells = op.ConstantOfShape(op.Concat(zero, size, axis=0))
    for step in range(levels):
        depth = op.Reshape(levels - single - step, one)
        begin = op.Gather(begins, depth)
        end = op.Gather(begins, depth + one)
        count = op.Gather(inner, depth)
        gates = op.Gemm(op.Slice(tokens, begin, end, zero), weight, bias)
        below = op.Slice(slots, end, op.Gather(begins, depth + two), zero) / two
        index = op.Unsqueeze(below, one)
        nothing = op.ConstantOfShape(op.Concat(count, size, axis=0))
        sums = op.ScatterND(nothing, index, states, reduction="add")
        own = op.Slice(gates, zero, size * three, one)
        own_forget = op.Slice(op.Slice(gates, size * three, size * four, one), zero, count, zero)
        remembered = op.Sigmoid(op.Gather(own_forget, below) + op.MatMul(states, forget)) * cells
        memory = op.ScatterND(nothing, index, remembered, reduction="add")
        above = op.Slice(own, zero, count, zero) + op.MatMul(sums, hidden)
        leaves = op.Slice(own, count, end - begin, zero)
        input_gate, output_gate, update = op.Split(op.Concat(above, leaves, axis=0), num_outputs=3, axis=1)
        none_kept = op.ConstantOfShape(op.Concat(end - begin - count, size, axis=0))
        cells = op.Sigmoid(input_gate) * op.Tanh(update) + op.Concat(memory, none_kept, axis=0)
        states = op.Sigmoid(output_gate) * op.Tanh(cells)
    return states


@script(_opset, default_opset=op)
def BinaryLevels(tokens, weight, bias, hidden, begins, inner, levels, slots):  # noqa: N802 # pragma: no cover
    zero = op.Constant(value_ints=[0])
    one = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    three = op.Constant(value_ints=[3])
    four = op.Constant(value_ints=[4])
    five = op.Constant(value_ints=[5])
    single = op.Constant(value_int=1)
    size = op.Shape(hidden, start=0, end=1) / two
    states = op.ConstantOfShape(op.Concat(zero, size, axis=0))
    cells = op.ConstantOfShape(op.Concat(zero, size, axis=0))
    for step in range(levels):
        depth = op.Reshape(levels - single - step, one)
        begin = op.Gather(begins, depth)
        end = op.Gather(begins, depth + one)
        count = op.Gather(inner, depth)
        gates = op.Gemm(op.Slice(tokens, begin, end, zero), weight, bias)
        index = op.Unsqueeze(op.Slice(slots, end, op.Gather(begins, depth + two), zero), one)
        nothing = op.ConstantOfShape(op.Concat(count * two, size, axis=0))
        pairs = op.Reshape(op.ScatterND(nothing, index, states, reduction="add"), op.Concat(count, size * two, axis=0))
        memory = op.Reshape(op.ScatterND(nothing, index, cells, reduction="add"), op.Concat(count, two, size, axis=0))
        own = op.Slice(gates, zero, size * three, one)
        own_forget = op.Unsqueeze(op.Slice(op.Slice(gates, size * three, size * four, one), zero, count, zero), one)
        added = op.MatMul(pairs, hidden)
        forget_gates = op.Reshape(op.Slice(added, size * three, size * five, one), op.Concat(count, two, size, axis=0))
        kept = op.ReduceSum(op.Sigmoid(forget_gates + own_forget) * memory, one, keepdims=0)
        above = op.Slice(own, zero, count, zero) + op.Slice(added, zero, size * three, one)
        leaves = op.Slice(own, count, end - begin, zero)
        input_gate, output_gate, update = op.Split(op.Concat(above, leaves, axis=0), num_outputs=3, axis=1)
        none_kept = op.ConstantOfShape(op.Concat(end - begin - count, size, axis=0))
        cells = op.Sigmoid(input_gate) * op.Tanh(update) + op.Concat(kept, none_kept, axis=0)
        states = op.Sigmoid(output_gate) * op.Tanh(cells)
    return states
# fmt: on


FUNCTIONS: dict[str, Any] = {"child_sum": ChildSumLevels, "binary": BinaryLevels}
