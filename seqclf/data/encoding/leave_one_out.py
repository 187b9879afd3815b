"""Removal of one token from each of several sequences, at the level of encoded tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.data.ragged import list_offsets


class Removal(NamedTuple):
    """M sequences, each a copy of one of N rows without one of its tokens.

    `lengths`: (M,) tokens that remain, at least 1. `kept`: indices of the remaining tokens among all S tokens of the
    rows, the M sequences end to end. `followers`: indices into `kept` of the tokens that came right after a removed
    one. `become_first`: mask of the followers whose removed token was the first of its row. `parents`: of the remaining
    nodes of trees, see `field_spec.ParentsSpec`; None for sequences.

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
        """(M + 1,) offsets of the sequences in `kept`."""
        return list_offsets(self.lengths)


def remove_tokens(offsets: np.ndarray, rows: np.ndarray, positions: np.ndarray) -> Removal:
    """Remove the token at `positions[i]` from a copy of row `rows[i]`, both (M,).

    `offsets`: (N + 1,) of the rows, which have at least two tokens each.
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
    """Removes tokens of N sequences with S tokens in total, each from a copy of its sequence.

    `offsets`: (N + 1,) of the sequences. `leaves_nothing`: (S,) mask of the tokens without which their sequence has
    none. `owners`: (S,) for each token the one whose value it shares: tokens of one owner lose their value together.
    `is_silent`: (S,) mask of the tokens that have no value to lose.

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
        """Remove one token from a copy of each of `rows`, (M,).

        `tokens`: (M,) their indices among all S tokens. None of them may leave nothing.
        """
        return remove_tokens(self.offsets, rows, tokens - self.offsets[rows])
