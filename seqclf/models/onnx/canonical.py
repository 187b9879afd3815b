"""Canonical form of an exported ONNX graph. Two exports of the same network result in identical files.

PyTorch's exporter writes data into the graph that differs between exports: installation paths, source lines, and
counters that continue from one export to the next. The library onnxscript writes the values that a loop passes to its
next iteration in an order that differs between processes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    import onnx_ir

NUMBER = re.compile(r"(_*\d+)+$")
LOOP_COUNTERS = 2  # the first two inputs of a Loop are its iteration number and its condition


def make_canonical(model: onnx_ir.Model, weights: Collection[str]) -> None:
    """Remove the exporter's metadata from a model, and put nodes, values and names in a canonical form.

    The canonical order and the canonical names depend only on what the graph computes. Inputs and outputs of the graph
    keep their names. All other names get a slash as their first character, so that they differ from any field name.
    `weights`: names of the initializers whose names do not change except for the slash. In all other names, the number
    that the exporter appended is removed.
    """
    _drop_records(model)
    _sort_nodes(model.graph)
    _rename(model.graph, weights)


def sort_carried_values(nodes: Any) -> None:
    """Sort the carried values of each loop by name.

    A carried value is a value that a loop passes to its next iteration. `nodes`: protobuf nodes of a function or graph.

    The library onnxscript collects carried values in a set, and the order of a set differs between processes.
    """
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


def _drop_records(model: onnx_ir.Model) -> None:
    nodes = list(_all_nodes(model.graph))
    graphs = [model.graph, *(body for node in nodes for body in _bodies(node))]
    values = [value for node in nodes for value in node.outputs]
    for graph in graphs:
        values += [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    parts: list[Any] = [model, *graphs, *nodes, *values]
    for part in parts:
        part.metadata_props.clear()
        part.doc_string = None


def _bodies(node: onnx_ir.Node) -> list[onnx_ir.Graph]:
    """Return the subgraphs of a node, such as the body of a loop."""
    bodies: list[onnx_ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            bodies.append(attribute.as_graph())
        elif attribute.type.name == "GRAPHS":
            bodies.extend(attribute.as_graphs())
    return bodies


def _all_nodes(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Node]:
    """Yield the nodes of a graph. The nodes in the subgraphs of a node follow the node."""
    for node in graph:
        yield node
        for body in _bodies(node):
            yield from _all_nodes(body)


def _read_values(node: onnx_ir.Node) -> list[Any]:
    """Return all values that a node and its subgraphs read, including values that the subgraphs compute."""
    read = list(node.inputs)
    for body in _bodies(node):
        for inner in _all_nodes(body):
            read.extend(inner.inputs)
        read.extend(body.outputs)
    return [value for value in read if value is not None]


def _sort_nodes(graph: onnx_ir.Graph) -> None:
    """Sort the nodes topologically. The new order does not depend on the previous order."""
    for node in graph:
        for body in _bodies(node):
            _sort_nodes(body)
    # Search from the outputs of the graph. Nodes that no output depends on come last.
    roots = [*(value.producer() for value in graph.outputs), *graph]
    done: dict[onnx_ir.Node, None] = {}
    stack = [(node, False) for node in reversed(roots) if node is not None]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            done[node] = None
        elif node not in done:
            stack.append((node, True))
            needed = [value.producer() for value in _read_values(node)]
            stack += [(other, False) for other in reversed(needed) if other is not None and other.graph is graph]
    graph.extend(done)


def _rename(graph: onnx_ir.Graph, weights: Collection[str]) -> None:
    outer = {*graph.inputs, *graph.outputs}
    used = {*(value.name for value in outer), *(f"/{name}" for name in weights)}
    node_names: set[str] = set()
    _order_initializers(graph)
    initializers: list[Any] = list(graph.initializers.values())
    # Remove all initializers before the renaming, because a new name may equal the old name of another initializer.
    graph.initializers.clear()
    for value in initializers:
        if value not in outer:
            value.name = f"/{value.name}" if value.name in weights else _new_name(value.name, used)
    for node in _all_nodes(graph):
        node.name = _new_name(node.name or node.op_type, node_names).removeprefix("/")
        inner = [value for body in _bodies(node) for value in (*body.inputs, *body.initializers.values())]
        for value in (*node.outputs, *inner):
            if value.name and value not in outer:
                value.name = _new_name(value.name, used)
    for value in initializers:
        graph.initializers[value.name] = value


def _order_initializers(graph: onnx_ir.Graph) -> None:
    """Sort the initializers in the order in which the nodes first use them, and drop those that nothing uses.

    The exporter leaves some behind when it converts a `scan`, and ONNX Runtime warns about each.
    """
    read = [value for node in graph for value in _read_values(node)]
    used = [value for value in (*read, *graph.outputs) if value.is_initializer()]
    ordered = dict.fromkeys(value for value in used if value.graph is graph)
    graph.initializers.clear()
    for value in ordered:
        graph.initializers[value.name] = value


def _new_name(name: Any, used: set[Any]) -> str:
    """Return a new name for a node or value, and add the new name to `used`.

    The new name is a slash followed by `name` without the exporter's number. If this name is in `used`, the lowest
    number that makes the name unique is appended.
    """
    base = f"/{NUMBER.sub('', name.removeprefix('/')) or 'value'}"
    new = next(new for new in itertools.chain([base], (f"{base}_{n}" for n in itertools.count(1))) if new not in used)
    used.add(new)
    return new
