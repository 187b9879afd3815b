"""Removal of one node from each of several trees, with all nodes below it, so that what remains is a tree."""

from __future__ import annotations

import numpy as np

from seqclf.data.encoding.leave_one_out import Removal, TokenRemoval
from seqclf.data.encoding.trees import subtree_sizes


class TreeRemoval(TokenRemoval):
    """Removes nodes of N trees whose nodes are in postorder: each comes after all nodes below it.

    An inner node without a word is there for its children alone. It goes with the last of them, and gives its place to
    the only one that is left. An inner node with a word stays.

    `parents`: (S,) index in the tree, -1 for the root. `is_wordless`: (S,) mask of nodes without a word; that of leaves
    is not read. `is_partial`: (S,) mask of nodes that may be the partial ones of `binarize`. A chain of them that
    becomes shorter is the chain that the remaining children would have had.

    >>> is_word = np.array([True, True, False])
    >>> nodes = TreeRemoval(np.array([0, 3]), np.array([2, 2, -1]), ~is_word, np.zeros(3, bool))
    >>> nodes.without(rows=np.array([0]), tokens=np.array([0])).kept.tolist(), nodes.leaves_nothing.tolist()
    ([1], [False, False, True])
    """

    def __init__(self, offsets: np.ndarray, parents: np.ndarray, is_wordless: np.ndarray, is_partial: np.ndarray):
        super().__init__(offsets)
        starts = np.repeat(offsets[:-1], np.diff(offsets))
        self.parents = np.where(parents >= 0, parents + starts, -1)  # among all S nodes
        below = np.flatnonzero(self.parents >= 0)
        children = np.bincount(self.parents[below], minlength=len(parents))
        siblings = np.full(len(parents), -1)  # the other of two children
        sums = np.zeros(len(parents), np.int64)
        np.add.at(sums, self.parents[below], below)
        of_two = below[children[self.parents[below]] == 2]
        siblings[of_two] = sums[self.parents[of_two]] - of_two
        is_wordless = is_wordless & (children > 0)
        is_partial = is_partial & (children == 2) & (siblings > np.arange(len(parents)))
        self.sizes = np.array(subtree_sizes(self.parents.tolist()), np.int64)
        # A node that is the only child of nodes without a word is removed with them.
        self.tops = _highest(self.parents, ((children == 1) & is_wordless)[self.parents])
        self.owners = _highest(self.parents, is_partial)
        self.is_silent = is_wordless[self.owners]
        self.leaves_nothing = self.parents[self.tops] < 0
        self.dissolved = self._dissolved(siblings, is_wordless, is_partial)

    def _dissolved(self, siblings: np.ndarray, is_wordless: np.ndarray, is_partial: np.ndarray) -> np.ndarray:
        """(S,) the node that gives its place to its children when a node is removed, -1 if there is none."""
        above, has_one = self.parents, siblings >= 0
        dissolved = np.where(has_one & (is_wordless | is_partial)[above], above, -1)
        return np.where(has_one & is_partial[siblings], siblings, dissolved)

    def without(self, rows: np.ndarray, tokens: np.ndarray) -> Removal:
        """See `TokenRemoval.without`."""
        tops = self.tops[tokens]
        sizes, dissolved = self.sizes[tops], self.dissolved[tops]
        starts, complete = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        lengths = complete - sizes - (dissolved >= 0)

        nodes = np.arange(int(complete.sum())) + np.repeat(starts - np.cumsum(complete) + complete, complete)
        last, count, gone = (np.repeat(values, complete) for values in (tops, sizes, dissolved))
        kept = nodes[((nodes > last) | (nodes <= last - count)) & (nodes != gone)]

        first, last, count, gone = (np.repeat(values, lengths) for values in (starts, tops, sizes, dissolved))
        parents = self.parents[kept]
        parents = np.where((parents == gone) & (gone >= 0), self.parents[gone], parents)
        removed_before = np.where(parents > last, count, 0) + ((gone >= 0) & (parents > gone))
        parents = np.where(parents >= 0, parents - first - removed_before, -1).astype(np.int32)
        none = np.empty(0, np.int64)
        return Removal(lengths, kept, none, none.astype(bool), parents)


def _highest(parents: np.ndarray, stands_for_parent: np.ndarray) -> np.ndarray:
    """Return the highest node that each node stands for: itself, or that of its parent where the mask says so."""
    highest = np.arange(len(parents))
    for node in np.flatnonzero((parents >= 0) & stands_for_parent)[::-1].tolist():  # parents first
        highest[node] = highest[parents[node]]
    return highest
