"""Nodes of a batch of trees, sorted by depth: all nodes of one depth are computed together.

The children of a node are one level deeper than the node, so a level needs nothing but the level below it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.models.pooling import token_mask

DOUBLINGS = 24  # of the distance to an ancestor, when the number of nodes is not known: depths up to 2**24


class SortedNodes(NamedTuple):
    """All positions of a padded batch (B, T), sorted by depth. Padding comes last.

    `order`: (B * T,) positions; within a level inner nodes come before leaves. `ranks`: (B * T,), the place of each
    position in that order. `depths`: (B * T,) by position, 0 for roots, T for padding. `is_inner`, `is_later`: (B * T,)
    bool by position, True for nodes with children, and for children that are not the first of their parent. `parents`:
    (B * T,) position of the parent, of roots and padding their own.
    """

    order: Tensor
    ranks: Tensor
    depths: Tensor
    is_inner: Tensor
    is_later: Tensor
    parents: Tensor


def sort_nodes(parents: Tensor, lengths: Tensor, doublings: int | None = None) -> SortedNodes:
    """Sort the nodes of a batch of trees. Holds operations alone that ONNX has.

    `parents`: (B, T) int64 index in the sequence, -1 for roots. `lengths`: (B,). `doublings`: at least the logarithm of
    the greatest depth; by default that of T.

    >>> chain_and_pair = torch.tensor([[1, 2, -1], [2, 2, -1]])
    >>> nodes = sort_nodes(chain_and_pair, torch.tensor([3, 3]))
    >>> nodes.depths.tolist(), nodes.order.tolist()
    ([2, 1, 0, 1, 1, 0], [2, 5, 1, 3, 4, 0])
    """
    rows, time = parents.shape
    positions = torch.arange(rows * time, device=parents.device)
    first = torch.arange(rows, device=parents.device)[:, None] * time  # position of the first token of a row
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
