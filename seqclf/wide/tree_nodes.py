"""Nodes of trees as n-grams read them: the label above each node, and sequences without nodes that hold no word."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqclf.data.field_spec import PARENTS
from seqclf.data.ragged import Ragged


def parent_places(sequences: Ragged) -> np.ndarray:
    """Return the index (S,) of the parent of each node among the S nodes of all trees, -1 for a root."""
    parents = np.asarray(sequences.fields[PARENTS]).astype(np.int64)
    return np.where(parents >= 0, parents + np.repeat(np.asarray(sequences.offsets)[:-1], sequences.lengths), -1)


def placeholder(ids: np.ndarray, above: np.ndarray) -> int | None:
    """Return the id that all inner nodes have and no leaf, None if there is no such id.

    Inner nodes with one and the same id, as in a treebank whose words are the leaves, tell nothing by it.

    Args:
        ids: (S,) id of each node.
        above: See `parent_places`.

    >>> placeholder(np.array([4, 5, 1]), np.array([2, 2, -1]))
    1
    """
    is_inner = np.zeros(len(ids), bool)
    is_inner[above[above >= 0]] = True
    inner = np.unique(ids[is_inner])
    return int(inner[0]) if len(inner) == 1 and inner[0] not in ids[~is_inner] else None


def ids_above(ids: Tensor, parents: Tensor, root: int) -> Tensor:
    """Return the id (B, T) of the parent of each node, `root` for a node without a parent.

    Args:
        ids: (B, T) id of each node.
        parents: (B, T) int64 position of the parent in the row, negative for a root. Padding may hold any integers.
        root: Id that stands above a root.
    """
    places = parents.clamp(min=0, max=ids.shape[1] - 1)
    return torch.where(parents < 0, root, ids.gather(1, places))


def compacted(ids: Tensor, stays: Tensor) -> Tensor:
    """Return ids (…, T) of the tokens that stay, in their order from the first position on. Zeros follow them.

    Args:
        ids: (…, T) int64.
        stays: (…, T) True for the tokens that stay.

    >>> compacted(torch.tensor([[7, 1, 8, 1]]), torch.tensor([[True, False, True, False]])).tolist()
    [[7, 8, 0, 0]]
    """
    # All tokens that go are written to one more position, which is then cut off.
    more = torch.cat([torch.zeros_like(ids), torch.zeros_like(ids[..., :1])], dim=-1)
    places = torch.where(stays, stays.long().cumsum(dim=-1) - 1, ids.shape[-1])
    return more.scatter(-1, places, ids)[..., :-1]
