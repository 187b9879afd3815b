"""Remove one encoded token from copies of sequences or trees, for leave-one-out explanations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.trees import subtree_sizes
from seqclf.data.ragged import list_offsets


class Removal(NamedTuple):
    """M shortened copies of rows, for leave-one-out explanations. Each copy is a row without one of its tokens.

    The original rows are N rows with S tokens in total.

    `lengths`: (M,) number of tokens of each copy, at least 1. `kept`: index of each token of the copies among the S
    tokens of the original rows. `followers`: positions in `kept` of the tokens that directly followed a removed token.
    `become_first`: mask over `followers`, True if the removed token was the first token of its row. `parents`: index of
    the parent of each remaining node of a tree (see `field_spec.ParentsSpec`), or None if the rows are not trees.

    >>> removal = remove_tokens(np.array([0, 3]), rows=np.array([0, 0]), positions=np.array([0, 1]))
    >>> removal.lengths.tolist(), removal.kept.tolist()
    ([2, 2], [1, 2, 0, 2])
    >>> removal.followers.tolist(), removal.become_first.tolist()
    ([0, 3], [True, False])
    """

    lengths: np.ndarray
    kept: np.ndarray
    followers: np.ndarray
    become_first: np.ndarray
    parents: np.ndarray | None = None

    @property
    def offsets(self) -> np.ndarray:
        """Return the (M + 1,) offsets of the copies in `kept`."""
        return list_offsets(self.lengths)


def remove_tokens(offsets: np.ndarray, rows: np.ndarray, positions: np.ndarray) -> Removal:
    """Remove the token at position `positions[i]` from a copy of row `rows[i]`, for each i.

    `offsets`: (N + 1,) offsets of the rows. Every row in `rows` must have at least two tokens. `rows`: (M,) index of
    the row to copy. `positions`: (M,) position of the removed token within its row.
    """
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts - 1
    new_starts = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) - np.repeat(new_starts, lengths)
    kept = places + np.repeat(starts, lengths) + (places >= np.repeat(positions, lengths))
    has_follower = positions < lengths
    followers = (new_starts + positions)[has_follower]
    return Removal(lengths, kept, followers, positions[has_follower] == 0)


class TokenRemoval:
    """Removes single tokens from copies of N sequences with S tokens in total.

    `offsets`: (N + 1,) offsets of the sequences. `leaves_nothing`: (S,) mask, True for a token that is the only token
    of its sequence. `owners`: (S,) index of the token that holds the value of each token, often the token itself.
    Tokens with the same owner share one value. `is_silent`: (S,) mask, True for a token that holds no value.

    >>> tokens = TokenRemoval(np.array([0, 3, 4]))
    >>> tokens.without(rows=np.array([0]), tokens=np.array([1])).kept.tolist(), tokens.leaves_nothing.tolist()
    ([0, 2], [False, False, False, True])
    """

    def __init__(self, offsets: np.ndarray):
        lengths = np.diff(offsets)
        self.offsets = offsets
        self.leaves_nothing = np.repeat(lengths == 1, lengths)
        self.owners = np.arange(offsets[-1])
        self.is_silent = np.zeros(offsets[-1], bool)

    def without(self, rows: np.ndarray, tokens: np.ndarray) -> Removal:
        """Remove one token from a copy of each sequence in `rows`.

        `rows`: (M,) index of the sequence to copy. `tokens`: (M,) index of the removed token among all S tokens.
        `leaves_nothing` must be False for each token in `tokens`.
        """
        return remove_tokens(self.offsets, rows, tokens - self.offsets[rows])


class TreeRemoval(TokenRemoval):
    """Removes a node and all nodes below it. After the removal, the remaining nodes form a tree.

    The nodes of each tree are in postorder: every node comes after all nodes below it.

    An inner node without a word only groups its children, so it is removed together with its last child. If an inner
    node without a word has one child left, the child takes its place. An inner node with a word stays even if all its
    children are removed.

    `parents`: (S,) index of the parent within the tree, -1 for the root. `is_wordless`: (S,) mask of nodes without a
    word. The mask `is_wordless` is ignored at leaves. `is_partial`: (S,) mask of nodes that may be partial nodes.
    `binarize` adds partial nodes to split a node with many children. If a child is removed, the remaining partial nodes
    are the partial nodes that `binarize` would make for the remaining children.

    >>> is_word = np.array([True, True, False])
    >>> nodes = TreeRemoval(np.array([0, 3]), np.array([2, 2, -1]), ~is_word, np.zeros(3, bool))
    >>> nodes.without(rows=np.array([0]), tokens=np.array([0])).kept.tolist(), nodes.leaves_nothing.tolist()
    ([1], [False, False, True])
    """

    def __init__(self, offsets: np.ndarray, parents: np.ndarray, is_wordless: np.ndarray, is_partial: np.ndarray):
        super().__init__(offsets)
        starts = np.repeat(offsets[:-1], np.diff(offsets))
        self.parents = np.where(parents >= 0, parents + starts, -1)  # indices among the S nodes of all trees
        below = np.flatnonzero(self.parents >= 0)
        children = np.bincount(self.parents[below], minlength=len(parents))
        siblings = np.full(len(parents), -1)  # sibling of each node whose parent has two children
        sums = np.zeros(len(parents), np.int64)
        np.add.at(sums, self.parents[below], below)
        of_two = below[children[self.parents[below]] == 2]
        siblings[of_two] = sums[self.parents[of_two]] - of_two
        is_wordless = is_wordless & (children > 0)
        is_partial = is_partial & (children == 2) & (siblings > np.arange(len(parents)))
        self.sizes = np.array(subtree_sizes(self.parents.tolist()), np.int64)
        # If a parent has no word and only one child, the child is removed together with the parent.
        self.tops = _highest(self.parents, ((children == 1) & is_wordless)[self.parents])
        self.owners = _highest(self.parents, is_partial)
        self.is_silent = is_wordless[self.owners]
        self.leaves_nothing = self.parents[self.tops] < 0
        self.dissolved = self._dissolved(siblings, is_wordless, is_partial)

    def _dissolved(self, siblings: np.ndarray, is_wordless: np.ndarray, is_partial: np.ndarray) -> np.ndarray:
        """Return an (S,) array: element i is the node that is dissolved when node i is removed, or -1.

        If a node is dissolved, its children take its place in the tree.
        """
        above, has_one = self.parents, siblings >= 0
        dissolved = np.where(has_one & (is_wordless | is_partial)[above], above, -1)
        return np.where(has_one & is_partial[siblings], siblings, dissolved)

    def without(self, rows: np.ndarray, tokens: np.ndarray) -> Removal:
        """Remove one node and all nodes below it from a copy of each tree in `rows` (see `TokenRemoval.without`)."""
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
    """For each of the S nodes, return the node that is reached by following parents as long as the mask is True.

    `stands_for_parent`: (S,) mask, True for a node whose parent is visited next.
    """
    highest = np.arange(len(parents))
    for node in np.flatnonzero((parents >= 0) & stands_for_parent)[::-1].tolist():  # parents before children
        highest[node] = highest[parents[node]]
    return highest
