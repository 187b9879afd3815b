"""Tree-LSTM encoder, which computes the state of each node of a tree, from the leaves to the root.

The nodes of a batch are sorted by depth: a level depends only on the next deeper one, and is computed at once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.models.classifier import SequenceEncoder
from seqclf.models.network import HostLengths
from seqclf.models.pooling import token_mask
from seqclf.settings.base import Count

Composition = Literal["child_sum", "binary"]
DOUBLINGS = 24  # argument `doublings` of `sort_nodes` in the ONNX export, for depths up to 2**24


class SortedNodes(NamedTuple):
    """Positions of all nodes of a padded batch (B, T), sorted by depth. Padding positions come last.

    A position is an index in the flattened batch (B * T), and each array has one entry for each. `order`: sorted
    positions; within a level, nodes with children come before leaves. `ranks`: index of each position in `order`.
    `depths`: 0 for a root, T for padding. `is_inner`: True for a node with children. `is_later`: True for a node that
    is not the first child of its parent. `parents`: position of the parent, or of a root or padding its own.
    """

    order: Tensor
    ranks: Tensor
    depths: Tensor
    is_inner: Tensor
    is_later: Tensor
    parents: Tensor


def sort_nodes(parents: Tensor, lengths: Tensor, doublings: int | None = None) -> SortedNodes:
    """Sort the nodes of a batch of trees by depth, with operations that ONNX has.

    `parents`: (B, T) int64 index of the parent of each node in its sequence, -1 for roots. `doublings`: number of loop
    iterations, for depths up to 2**`doublings`; by default enough for any tree.

    >>> chain_and_pair = torch.tensor([[1, 2, -1], [2, 2, -1]])
    >>> nodes = sort_nodes(chain_and_pair, torch.tensor([3, 3]))
    >>> nodes.depths.tolist(), nodes.order.tolist()
    ([2, 1, 0, 1, 1, 0], [2, 5, 1, 3, 4, 0])
    """
    rows, time = parents.shape
    positions = torch.arange(rows * time, device=parents.device)
    first = torch.arange(rows, device=parents.device)[:, None] * time  # position of the first node of each tree
    inside = token_mask(lengths, time)
    has_parent = (inside & (parents >= 0)).flatten()
    above = torch.where(has_parent, (parents + first).flatten(), positions)
    depths = has_parent.long()
    ancestors = above
    for _ in range(max(1, time.bit_length()) if doublings is None else doublings):
        depths = depths + depths.index_select(0, ancestors)
        ancestors = ancestors.index_select(0, ancestors)
    is_inner = torch.zeros_like(above).scatter_add(0, above, has_parent.long()) > 0
    eldest = torch.full_like(above, rows * time).scatter_reduce(
        0, above, torch.where(has_parent, positions, rows * time), "amin"
    )
    is_later = has_parent & (positions != eldest.index_select(0, above))
    depths = torch.where(inside.flatten(), depths, time)
    order = (depths * 2 + (~is_inner).long()).argsort()
    ranks = torch.zeros_like(order).scatter(0, order, positions)
    return SortedNodes(order, ranks, depths, is_inner, is_later, above)


FORGET_BIAS = 1.0  # initial bias that keeps the forget gates open, so that gradients do not vanish after a few levels


class ChildSumCell(nn.Module):
    """Tree-LSTM cell for nodes with any number of unordered children, whose states it adds up. Each has a forget gate.

    `slots`: (M,) integers of M children. If the parent has the index p among the inner nodes of its level, that of its
    first child is 2 * p, and that of each further child is 2 * p + 1.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.forget = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(
        self, gates: Tensor, forget_gates: Tensor, slots: Tensor, states: Tensor, cells: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return gate inputs (K, 3H) for K inner nodes, and the sum (K, H) of the cell states kept from their children.

        `gates` (K, 3H), `forget_gates` (K, H): gate inputs that depend only on the tokens of the inner nodes. `states`,
        `cells`: (M, H) of the children.
        """
        parents = slots // 2
        sums = torch.zeros_like(forget_gates).index_add(0, parents, states)
        remembered = torch.sigmoid(forget_gates.index_select(0, parents) + self.forget(states)) * cells
        return gates + self.hidden(sums), torch.zeros_like(forget_gates).index_add(0, parents, remembered)


class BinaryCell(nn.Module):
    """Tree-LSTM cell for nodes with a left and a right child, zeros for a missing one. `slots`: see `ChildSumCell`.

    The states of more than two children are added to the state of the right child.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.hidden = nn.Linear(2 * hidden_size, 5 * hidden_size, bias=False)

    def forward(
        self, gates: Tensor, forget_gates: Tensor, slots: Tensor, states: Tensor, cells: Tensor
    ) -> tuple[Tensor, Tensor]:
        count, size = forget_gates.shape
        children = states.new_zeros(2 * count, size).index_add(0, slots, states).view(count, 2 * size)
        memory = cells.new_zeros(2 * count, size).index_add(0, slots, cells).view(count, 2, size)
        added, forget = self.hidden(children).split([3 * size, 2 * size], dim=1)
        remembered = torch.sigmoid(forget.view(count, 2, size) + forget_gates[:, None]) * memory
        return gates + added, remembered.sum(dim=1)


CELLS: dict[str, type[ChildSumCell] | type[BinaryCell]] = {"child_sum": ChildSumCell, "binary": BinaryCell}


class TreeLSTM(SequenceEncoder):
    """Tree-LSTM encoder (Tai et al. 2015), which reads each tree from the leaves to the root, its only output.

    `composition`: "child_sum" for nodes with any number of children without an order, or "binary" for nodes with a left
    and a right child. All nodes of one depth, in all trees of the batch, are computed together.

    >>> encoder = TreeLSTM(3, hidden_size=8)
    >>> parents = torch.tensor([[1, 2, -1], [2, 2, -1]])  # a chain, and a node with two children
    >>> host = np.array([3, 3])
    >>> outputs, lengths, _ = encoder(torch.zeros(2, 3, 3), torch.from_numpy(host), host, parents=parents)
    >>> outputs.shape, lengths
    (torch.Size([2, 1, 8]), tensor([1, 1]))
    """

    structure = ("parents",)

    def __init__(self, input_size: int, *, composition: Composition = "child_sum", hidden_size: Count = 128):
        super().__init__()
        self.size = hidden_size
        self.composition = composition
        self.input = nn.Linear(input_size, 4 * hidden_size)  # gates: input, output, update, forget
        self.cell = CELLS[composition](hidden_size)
        nn.init.constant_(self.input.bias[3 * hidden_size :], FORGET_BIAS)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths, parents: Tensor
    ) -> tuple[Tensor, Tensor, HostLengths]:
        """Return the state of each root as an output sequence of length 1 (see `SequenceEncoder.forward`).

        `parents`: (B, T) int64 index of the parent of each node, which comes after its children; -1 for the root, the
        last node.
        """
        nodes = sort_nodes(parents, lengths)
        roots = self.read_levels(tokens, lengths, nodes)[0][: len(lengths)]
        ones = None if host_lengths is None else np.ones_like(host_lengths)
        return self.in_rows(roots, nodes, lengths)[:, None], torch.ones_like(lengths), ones

    def node_states(self, tokens: Tensor, lengths: Tensor, parents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states (B, H) of the roots and (N, H) of all nodes, and the positions (N,) of these in B * T."""
        nodes = sort_nodes(parents, lengths)
        levels = self.read_levels(tokens, lengths, nodes)
        states = torch.cat(levels)
        return self.in_rows(levels[0], nodes, lengths), states, nodes.order[: len(states)]

    @staticmethod
    def in_rows(roots: Tensor, nodes: SortedNodes, lengths: Tensor) -> Tensor:
        """Return the states of the roots (B, H), given in the order of `nodes`, in the order of the batch."""
        time = nodes.order.shape[0] // lengths.shape[0]
        positions = torch.arange(lengths.shape[0], device=lengths.device) * time + lengths - 1
        return roots.index_select(0, nodes.ranks.index_select(0, positions))

    def read_levels(self, tokens: Tensor, lengths: Tensor, nodes: SortedNodes) -> list[Tensor]:
        """Return a tensor of node states for each depth. The first tensor has the states of the roots."""
        order = nodes.order[: int(lengths.sum())]
        counts, inner_counts = _level_sizes(nodes, order)
        # Compute the gate inputs that depend on a node's own token for all levels at once.
        of_tokens = self.input(tokens.flatten(0, 1).index_select(0, order))
        gates, forget_gates = of_tokens.split([3 * self.size, self.size], dim=1)
        # Use split instead of slices, because the gradient of each slice would be as large as the whole tensor.
        sizes = [size for count, inner in zip(counts, inner_counts, strict=True) for size in (inner, count - inner)]
        gates_of, forget_gates_of = gates.split(sizes), forget_gates.split(sizes)
        parent_ranks = nodes.ranks.index_select(0, nodes.parents.index_select(0, order)).split(counts)
        is_later = nodes.is_later.index_select(0, order).split(counts)
        begins = np.concatenate([[0], np.cumsum(counts)]).tolist()
        levels: list[Tensor] = []
        cells = states = tokens.new_zeros(0, self.size)
        for depth in reversed(range(len(counts))):
            level, leaves = gates_of[2 * depth], gates_of[2 * depth + 1]
            kept = leaves.new_zeros(len(leaves), self.size)
            if len(level):
                slots = 2 * (parent_ranks[depth + 1] - begins[depth]) + is_later[depth + 1].long()
                level, memory = self.cell(level, forget_gates_of[2 * depth], slots, states, cells)
                kept = torch.cat([memory, kept])
                leaves = torch.cat([level, leaves])
            input_gate, output_gate, update = leaves.split(self.size, dim=1)
            cells = torch.sigmoid(input_gate) * torch.tanh(update) + kept
            states = torch.sigmoid(output_gate) * torch.tanh(cells)
            levels.append(states)
        return levels[::-1]

    def onnx_form(self) -> nn.Module:
        return OnnxTreeLSTM(self)


def _level_sizes(nodes: SortedNodes, order: Tensor) -> tuple[list[int], list[int]]:
    """Return the number of nodes and of inner nodes of each depth, copied together, so that the GPU is awaited once."""
    depths = nodes.depths.index_select(0, order)
    counts = torch.bincount(depths)
    inner = torch.bincount(depths[nodes.is_inner.index_select(0, order)], minlength=len(counts))
    return tuple(torch.stack([counts, inner]).tolist())


class OnnxTreeLSTM(nn.Module):
    """A `TreeLSTM` in operations that ONNX has. The method `forward` runs only inside the ONNX exporter."""

    structure = ("parents",)
    weight: Tensor
    bias: Tensor

    def __init__(self, encoder: Any):
        from seqclf.models.onnx.functions import DOMAIN, FUNCTIONS, VERSION  # import onnxscript only for an export

        super().__init__()
        self.size = encoder.size
        self.in_rows = encoder.in_rows
        self.onnx_function = FUNCTIONS[encoder.composition]
        self.operator, self.version = f"{DOMAIN}::{self.onnx_function.name}", VERSION
        self.register_buffer("weight", encoder.input.weight.detach().t().contiguous())
        self.register_buffer("bias", encoder.input.bias.detach().clone())
        self.cell_weights = [f"cell_{name.replace('.', '_')}" for name, _ in encoder.cell.named_parameters()]
        for name, matrix in zip(self.cell_weights, encoder.cell.parameters(), strict=True):
            self.register_buffer(name, matrix.detach().t().contiguous())

    def forward(
        self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths, parents: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        time = tokens.shape[1]
        nodes = sort_nodes(parents, lengths, DOUBLINGS)
        is_node = (nodes.depths < time).long()
        counts = torch.zeros(time + 2, dtype=torch.int64).scatter_add(0, nodes.depths, is_node)
        inner = torch.zeros(time + 1, dtype=torch.int64).scatter_add(0, nodes.depths, nodes.is_inner.long())
        begins = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        levels = (nodes.depths * is_node).max() + 1
        above = nodes.parents.index_select(0, nodes.order)
        level_begins = begins.index_select(0, nodes.depths.index_select(0, above).clamp(max=time))
        places = nodes.ranks.index_select(0, above) - level_begins
        slots = 2 * places + nodes.is_later.index_select(0, nodes.order).long()
        roots = torch.onnx.ops.symbolic(
            self.operator,
            (
                tokens.flatten(0, 1).index_select(0, nodes.order),
                *(self.weight, self.bias, *map(self.get_buffer, self.cell_weights), begins, inner, levels, slots),
            ),
            dtype=torch.float32,
            shape=(lengths.shape[0], self.size),
            version=self.version,
        )
        return self.in_rows(roots, nodes, lengths)[:, None], torch.ones_like(lengths), None
