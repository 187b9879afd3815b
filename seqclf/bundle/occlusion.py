"""Occlusion: the contribution of each token to a prediction, as the change when the token is left out.

The value that changes is the log-odds of the predicted class, log(p / (1 - p)), with the probability that predictions
show. For two classes it is the margin of the logits. A probability near 1 hardly moves, whatever is left out; log-odds
do not saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.leave_one_out import TokenRemoval
from seqclf.data.field_spec import PARENTS
from seqclf.data.ragged import Ragged, list_offsets, take

OWNERS = "owners of values"  # an array beside the fields; its spaces keep it apart from their names
NO_TRACES: Mapping[str, np.ndarray] = MappingProxyType({})
MAX_OCCLUDED_TOKENS = 500_000  # at a time, of all shortened copies together

# (copies, the row of each) → (M,) log-odds of the class that was predicted for the row.
Score = Callable[[Ragged, np.ndarray], np.ndarray]


class Contributions(NamedTuple):
    """Contributions of S tokens, rows end to end, in log-odds of the predicted class. Positive ones support it.

    `tokens`: (S,) for each token left out. `by_field`: field → (S,) for that field of one token, empty for sequences of
    one field; for a tree whose inner nodes have words, those of each word alone. Contributions of fields do not add up
    to that of the token. NaN for tokens that the model did not read.
    """

    tokens: np.ndarray
    by_field: dict[str, np.ndarray]


class _Copies(NamedTuple):
    """Occluded copies of rows: the row of each, (M,), and its token among all S tokens, (M,)."""

    rows: np.ndarray
    tokens: np.ndarray

    def parts(self, lengths: np.ndarray) -> Iterator[_Copies]:
        """Cut into parts of about `MAX_OCCLUDED_TOKENS`. `lengths`: (N,) of the rows."""
        part = np.cumsum(lengths[self.rows], dtype=np.int64) // MAX_OCCLUDED_TOKENS
        for chosen in np.split(np.arange(len(self.rows)), np.flatnonzero(np.diff(part)) + 1):
            yield _Copies(self.rows[chosen], self.tokens[chosen])


def log_odds(scaled: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """(N,) log-odds of class `classes[i]` in each row. `scaled`: (N, C) logits divided by the temperature.

    >>> log_odds(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([1, 0])).tolist()
    [2.0, 0.0]
    """
    rows = np.arange(len(scaled))
    others = scaled.astype(np.float64)
    chosen = others[rows, classes].copy()
    others[rows, classes] = -np.inf
    highest = others.max(axis=1)
    return chosen - highest - np.log(np.exp(others - highest[:, None]).sum(axis=1))


def with_none(contributions: np.ndarray) -> list[float | None]:
    """Return contributions as Python values, None for those of tokens that the model did not read.

    >>> with_none(np.array([0.5, np.nan]))
    [0.5, None]
    """
    return [None if math.isnan(value) else value for value in contributions.tolist()]


def apart_fields(encoders: Mapping[str, FieldEncoder]) -> list[str]:
    """Return the fields whose contribution differs from that of the token: of several ones, or of nodes with words."""
    return list(encoders) if len(encoders) > 1 or any(encoder.removes_others for encoder in encoders.values()) else []


def occlude(
    encoders: Mapping[str, FieldEncoder],
    sequences: Ragged,
    score: Score,
    *,
    by_field: bool,
    tokens: np.ndarray | None = None,
    tokens_read: np.ndarray | None = None,
    traces: Mapping[str, np.ndarray] = NO_TRACES,
    advance: Callable[[float], None] = lambda rows: None,
) -> Contributions:
    """Contributions of the tokens of N encoded sequences.

    A token is removed, so that the sequence is shorter by one, and with a node of a tree all nodes below it. Where
    nothing would be left, there is a single token that says nothing (`FieldEncoder.neutral`), as there is for one field
    of a token with `by_field`.

    `score`: also called for the complete rows. `tokens`: (M,) indices of the tokens to leave out, ascending; None for
    all. `tokens_read`: (N,) number of tokens after which the model stopped, None if it reads all; the others would
    contribute nothing. `traces`: of the tokens, see `removal_traces`. `advance`: called with the number of rows,
    in fractions, that were completed.
    """
    lengths = sequences.lengths
    complete = score(sequences, np.arange(len(sequences)))
    chosen = np.arange(int(lengths.sum())) if tokens is None else tokens
    everything = _Copies(np.searchsorted(sequences.offsets, chosen, side="right") - 1, chosen)
    is_read = np.ones(len(chosen), bool)
    if tokens_read is not None:
        is_read = chosen < (sequences.offsets[:-1] + tokens_read)[everything.rows]
    fields = apart_fields(encoders) if by_field else []
    rows_per_copy = len(lengths) / max(1, int(is_read.sum()) * (1 + len(fields)))
    removal = next(iter(encoders.values())).token_removal(sequences)  # of all fields, or of one that stands alone

    def contributions(occluded: Callable[[_Copies], Ragged], needed: np.ndarray) -> np.ndarray:
        changes = np.where(is_read, 0.0, np.nan)
        done = 0
        for copies in _Copies(everything.rows[needed], everything.tokens[needed]).parts(lengths):
            if len(copies.rows):
                part = needed[done : done + len(copies.rows)]
                changes[part] = complete[copies.rows] - score(occluded(copies), copies.rows)
                done += len(part)
                advance(len(part) * rows_per_copy)
        return changes

    traced = Ragged(sequences.offsets, {**sequences.fields, **traces})
    by_token = contributions(partial(_without_token, encoders, traced, removal), np.flatnonzero(is_read))
    has_value = np.flatnonzero(is_read & ~removal.is_silent[chosen])
    by_name = {
        name: contributions(partial(_without_values, encoders, sequences, removal, name), has_value) for name in fields
    }
    return Contributions(by_token, by_name)


def _without_token(
    encoders: Mapping[str, FieldEncoder], sequences: Ragged, removable: TokenRemoval, copies: _Copies
) -> Ragged:
    """Copies without one token, in the order of `copies`."""
    is_blank = removable.leaves_nothing[copies.tokens]
    removal = removable.without(copies.rows[~is_blank], copies.tokens[~is_blank])
    fields = {name: encoder.without_tokens(sequences.fields, removal) for name, encoder in encoders.items()}
    if removal.parents is not None:
        fields[PARENTS] = removal.parents
    result = Ragged(removal.offsets, fields)
    if not is_blank.any():
        return result
    # The last token is the only one, or the root, whose parent is that of a single node too.
    last = sequences.offsets[copies.rows[is_blank] + 1] - 1
    blank = {name: encoder.neutral(sequences.fields[name][last]) for name, encoder in encoders.items()}
    if removal.parents is not None:
        blank[PARENTS] = sequences.fields[PARENTS][last]
    lengths = np.concatenate([result.lengths, np.ones(len(last), np.int64)])
    joined = {name: np.concatenate([values, blank[name]]) for name, values in fields.items()}
    # Shortened copies come first in the joined ones, whatever their order among all copies.
    order = np.argsort(np.concatenate([np.flatnonzero(~is_blank), np.flatnonzero(is_blank)]))
    return take(Ragged(list_offsets(lengths), joined), order)


def _without_values(
    encoders: Mapping[str, FieldEncoder], sequences: Ragged, removable: TokenRemoval, name: str, copies: _Copies
) -> Ragged:
    """Copies in which the field `name` of one token, and of those that share its value, says nothing."""
    rows = Ragged(sequences.offsets, {**sequences.fields, OWNERS: removable.owners})
    result = take(rows, copies.rows)
    fields = dict(result.fields)
    owners = np.repeat(removable.owners[copies.tokens], result.lengths)
    places = np.flatnonzero(fields.pop(OWNERS) == owners)
    # A copy: `take` gives the sequences themselves where each is taken once.
    fields[name] = fields[name].copy()
    fields[name][places] = encoders[name].neutral(fields[name][places])
    return Ragged(result.offsets, fields)
