"""Canonical form of an exported ONNX graph. Two exports of the same network result in identical files.

PyTorch's exporter writes data that differs between exports: installation paths, source lines, running counters; and
onnxscript collects the values that a loop carries in a set, whose order differs between processes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    import onnx_ir

NUMBER = re.compile(r"(_*\d+)+$")
LOOP_COUNTERS = 2  # the first two inputs of a Loop are its iteration number and its condition


def make_canonical(model: onnx_ir.Model, weights: Collection[str]) -> None:
    """Remove the exporter's metadata from a model, and put initializers and names in a canonical form.

    Inputs and outputs of the graph keep their names. All other names start with a slash, so that they differ from any
    field name: an initializer in `weights` keeps its name behind it, the others are numbers.
    """
    graph = model.graph
    graph.sort()
    nodes = list(graph.all_nodes())
    subgraphs = list(graph.subgraphs())
    outer = dict.fromkeys((*graph.inputs, *graph.outputs))
    # The order of first use. The exporter leaves initializers that nothing uses behind when it converts a `scan`, and
    # ONNX Runtime warns about each.
    read = [value for node in nodes for value in node.inputs]
    read += [value for part in subgraphs for value in part.outputs]
    used = dict.fromkeys(value for value in (*read, *graph.outputs) if value is not None and value.is_initializer())
    initializers = [value for value in used if value.graph is graph]
    inner = [value for part in subgraphs for value in (*part.inputs, *part.initializers.values())]
    computed = [value for node in nodes for value in node.outputs if value.name]  # an optional output has no name
    parts: list[Any] = [model, graph, *subgraphs, *nodes, *outer, *initializers, *inner, *computed]
    for part in parts:
        part.metadata_props.clear()
        part.doc_string = None
    # Remove all initializers before the renaming, because a new name may equal the old name of another initializer.
    graph.initializers.clear()
    for number, value in enumerate(dict.fromkeys((*initializers, *inner, *computed))):
        if value not in outer:
            value.name = f"/{value.name}" if value.name in weights else f"/{number}"
    for value in initializers:
        graph.initializers[str(value.name)] = value
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"


def sort_carried_values(nodes: Any) -> None:
    """Sort by name the values that each loop in the protobuf `nodes` passes to its next iteration."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                sort_carried_values(attribute.g.node)
                if node.op_type == "Loop":
                    _sort_carried(node, attribute.g)


def _sort_carried(loop: onnx.NodeProto, body: onnx.GraphProto) -> None:
    carried = body.input[LOOP_COUNTERS:]
    order = sorted(range(len(carried)), key=lambda place: NUMBER.sub("", carried[place].name))
    for values, begin in ((loop.input, LOOP_COUNTERS), (body.input, LOOP_COUNTERS), (body.output, 1), (loop.output, 0)):
        end = begin + len(order)
        sorted_values = [*values[:begin], *(values[begin + place] for place in order), *values[end:]]
        del values[:]  # a protobuf list does not support assignment
        values.extend(sorted_values)
