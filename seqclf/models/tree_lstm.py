"""Tree-LSTM: a recurrence from the leaves of a tree to its root."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.config.argument_types import checks_values
from seqclf.config.options import Count
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.options import Composition
from seqclf.models.tree_levels import SortedNodes, sort_nodes

FORGET_BIAS = 1.0  # remembers at first, else gradients vanish within a few levels


class NodeStates(NamedTuple):
    """Hidden states of the N nodes of a batch, (N, H), and `positions`: (N,) theirs in the flattened batch (B * T)."""

    states: Tensor
    positions: Tensor


class ChildSumCell(nn.Module):
    """Reads the sum of the children, of any number and in no order. Each child has a forget gate.

    `slots`: (M,) twice the number of the parent among the inner nodes of the level, plus 1 for later children.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.forget = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(
        self, gates: Tensor, forget_gates: Tensor, slots: Tensor, states: Tensor, cells: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gates (K, 3H) of K inner nodes with what their M children add, and the memory (K, H) they keep.

        `gates`, `forget_gates` (K, H): what the nodes themselves add. `states`, `cells`: (M, H) of the children.
        """
        parents = slots // 2
        sums = torch.zeros_like(forget_gates).index_add(0, parents, states)
        remembered = torch.sigmoid(forget_gates.index_select(0, parents) + self.forget(states)) * cells
        return gates + self.hidden(sums), torch.zeros_like(forget_gates).index_add(0, parents, remembered)


class BinaryCell(nn.Module):
    """Reads a left and a right child. Further children are added to the right one, a missing one is zero.

    `slots`: see `ChildSumCell`.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.hidden = nn.Linear(2 * hidden_size, 5 * hidden_size, bias=False)

    def forward(
        self, gates: Tensor, forget_gates: Tensor, slots: Tensor, states: Tensor, cells: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `ChildSumCell.forward`."""
        count, size = forget_gates.shape
        children = states.new_zeros(2 * count, size).index_add(0, slots, states).view(count, 2 * size)
        memory = cells.new_zeros(2 * count, size).index_add(0, slots, cells).view(count, 2, size)
        added, forget = self.hidden(children).split([3 * size, 2 * size], dim=1)
        remembered = torch.sigmoid(forget.view(count, 2, size) + forget_gates[:, None]) * memory
        return gates + added, remembered.sum(dim=1)


CELLS: dict[str, type[ChildSumCell] | type[BinaryCell]] = {"child_sum": ChildSumCell, "binary": BinaryCell}


class TreeLSTM(SequenceEncoder):
    """Tree-LSTM of Tai et al. (2015): reads each tree from its leaves to its root, whose state is the only output.

    `composition`: `child_sum` for nodes with any number of children, whose order does not count, or `binary` for a left
    and a right child. All nodes of a depth are computed together, over all trees of the batch.

    >>> encoder = TreeLSTM(3, hidden_size=8)
    >>> parents = torch.tensor([[1, 2, -1], [2, 2, -1]])  # a chain, and a node with two children
    >>> host = np.array([3, 3])
    >>> outputs, lengths, _ = encoder(torch.zeros(2, 3, 3), torch.from_numpy(host), host, parents=parents)
    >>> outputs.shape, lengths
    (torch.Size([2, 1, 8]), tensor([1, 1]))
    """

    structure = ("parents",)

    @checks_values("model")
    def __init__(self, input_size: int, *, composition: Composition = "child_sum", hidden_size: Count = 128):
        super().__init__()
        self.size = hidden_size
        self.composition = composition
        self.input = nn.Linear(input_size, 4 * hidden_size)  # input, output and update gates, then the forget gate
        self.cell = CELLS[composition](hidden_size)
        nn.init.constant_(self.input.bias[3 * hidden_size :], FORGET_BIAS)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, lengths: Tensor, host_lengths: np.ndarray | None, parents: Tensor
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        """Return the states of the roots as sequences of one token (see `SequenceEncoder`).

        `parents`: (B, T) int64 index of the parent of each node, which comes later; -1 for the root, the last one.
        """
        nodes = sort_nodes(parents, lengths)
        roots = self.read_levels(tokens, lengths, nodes)[0][: len(lengths)]
        return self.in_rows(roots, nodes, lengths)[:, None], torch.ones_like(lengths), _ones(host_lengths)

    def node_states(self, tokens: Tensor, lengths: Tensor, parents: Tensor) -> tuple[Tensor, NodeStates]:
        """Return the states of the roots (B, H) in the order of the rows, and those of all nodes."""
        nodes = sort_nodes(parents, lengths)
        levels = self.read_levels(tokens, lengths, nodes)
        states = torch.cat(levels)
        return self.in_rows(levels[0], nodes, lengths), NodeStates(states, nodes.order[: len(states)])

    @staticmethod
    def in_rows(roots: Tensor, nodes: SortedNodes, lengths: Tensor) -> Tensor:
        """Return states of roots (B, H), which are sorted like nodes, in the order of the rows."""
        time = nodes.order.shape[0] // lengths.shape[0]
        positions = torch.arange(lengths.shape[0], device=lengths.device) * time + lengths - 1
        return roots.index_select(0, nodes.ranks.index_select(0, positions))

    def read_levels(self, tokens: Tensor, lengths: Tensor, nodes: SortedNodes) -> list[Tensor]:
        """Return the states of the nodes of each depth, the roots first."""
        order = nodes.order[: int(lengths.sum())]
        counts, inner_counts = _level_sizes(nodes, order)
        # What nodes add to their own gates, in one multiplication for all levels.
        gates, forget_gates = self.input(tokens.flatten(0, 1).index_select(0, order)).split(
            [3 * self.size, self.size], dim=1
        )
        # Split and not sliced: the gradient of a slice is as large as the whole.
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
        from seqclf.models.onnx.tree import OnnxTreeLSTM  # onnxscript, which only an export needs

        return OnnxTreeLSTM(self)


def _level_sizes(nodes: SortedNodes, order: Tensor) -> tuple[list[int], list[int]]:
    """Return the nodes of each depth, and the inner ones among them. Waits for the device once."""
    depths = nodes.depths.index_select(0, order)
    counts = torch.bincount(depths)
    inner = torch.bincount(depths[nodes.is_inner.index_select(0, order)], minlength=len(counts))
    both = torch.stack([counts, inner]).tolist()
    return both[0], both[1]


def _ones(host_lengths: np.ndarray | None) -> np.ndarray | None:
    return None if host_lengths is None else np.ones_like(host_lengths)
