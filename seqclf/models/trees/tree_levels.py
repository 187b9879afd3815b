"""Sorting of the nodes of a batch of trees by depth: a level depends only on the next deeper one, and runs at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.models.pooling import token_mask

DOUBLINGS = 24  # argument `doublings` of `sort_nodes` in the ONNX export, for depths up to 2**24


class SortedNodes(NamedTuple):
    """Positions of all nodes of a padded batch (B, T), sorted by depth. Padding positions come last.

    A position is an index in the flattened batch (B * T), and each array has one entry for each. `order`: sorted
    positions; within a level, nodes with children come before leaves. `ranks`: index of each position in `order`.
    `depths`: 0 for a root, T for padding. `is_inner`: True for a node with children. `is_later`: True for a node that
    is not the first child of its parent. `parents`: position of the parent; a root or a padding position has its own
    position.
    """

    order: Tensor
    ranks: Tensor
    depths: Tensor
    is_inner: Tensor
    is_later: Tensor
    parents: Tensor


def sort_nodes(parents: Tensor, lengths: Tensor, doublings: int | None = None) -> SortedNodes:
    """Sort the nodes of a batch of trees by depth, with operations that ONNX has.

    `parents`: (B, T) int64 index of the parent of each node in the sequence, -1 for roots. `lengths`: (B,) number of
    nodes of each tree. `doublings`: number of loop iterations, for depths up to 2**`doublings`; by default enough for
    any tree.

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
