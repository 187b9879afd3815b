"""Missing values within a sequence: the last value seen, and the time since then."""

from __future__ import annotations

import numpy as np


def last_seen(seen: np.ndarray, lengths: np.ndarray, *, inclusive: bool) -> np.ndarray:
    """(S, W) index of the last token of the same sequence that has a value, -1 where there is none.

    `seen`: (S, W) mask of values that are present, rows end to end. `lengths`: (N,). The search goes up to each token
    if `inclusive`, else up to the one before it.

    >>> last_seen(np.array([[True], [False], [False]]), np.array([2, 1]), inclusive=True).tolist()
    [[0], [0], [-1]]
    """
    indices = np.where(seen, np.arange(len(seen))[:, None], -1)
    if not inclusive:
        indices = np.concatenate([np.full((1, seen.shape[1]), -1), indices[:-1]])
    # The running maximum does not stop at the ends of rows, so values of earlier rows are discarded below.
    latest = np.maximum.accumulate(indices, axis=0)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
    return np.where(latest >= starts, latest, -1)


def fill_forward(values: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(S, W) values, each missing one replaced by the last one before it, NaN where there is none."""
    latest = last_seen(seen, lengths, inclusive=True)
    return np.where(latest < 0, np.nan, np.take_along_axis(values, np.maximum(latest, 0), axis=0))


def elapsed_since_seen(seen: np.ndarray, lengths: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """(S, W) time since the last value before each token, or since the first token where there is none.

    `clock`: (S,) time of each token, in any unit.
    """
    latest = last_seen(seen, lengths, inclusive=False)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return clock[:, None] - clock[np.where(latest < 0, starts[:, None], latest)]
