"""Occlusion: the contribution of a token is the change of the prediction if the token is removed.

The change is measured in log-odds of the predicted class, log(p / (1 - p)), where p is the predicted probability. For
two classes, the log-odds are the difference of the two logits. Log-odds are better than probabilities here, because a
probability near 1 hardly changes if a token is removed.
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

OWNERS = "owners of values"  # name of an extra array (a field name cannot contain spaces)
NO_TRACES: Mapping[str, np.ndarray] = MappingProxyType({})
MAX_OCCLUDED_TOKENS = 500_000  # maximum total number of tokens in the copies that are scored at a time

# A score is a function with two arguments: M copies, and the row index of each copy. It returns the (M,) log-odds of
# the class that was predicted for the row.
Score = Callable[[Ragged, np.ndarray], np.ndarray]


class Contributions(NamedTuple):
    """Contributions of S tokens to the predicted class, in log-odds. A positive contribution supports the prediction.

    The tokens of consecutive rows are concatenated. A token that the model did not read has the contribution NaN.

    `tokens`: (S,) contribution of each token with all of its fields. `by_field`: dict field name → (S,) contribution of
    the field in each token. The dict is empty if the sequences have a single field. For a tree whose inner nodes have
    words, `by_field` holds the contribution of each word alone, without the descendants of its node. The contributions
    of the fields need not add up to the contribution of the token.
    """

    tokens: np.ndarray
    by_field: dict[str, np.ndarray]


class _Copies(NamedTuple):
    """M copies of rows. One token is occluded in each copy.

    `rows`: (M,) row index of each copy. `tokens`: (M,) index of each copy's occluded token, counted over the tokens of
    all rows.
    """

    rows: np.ndarray
    tokens: np.ndarray

    def parts(self, lengths: np.ndarray) -> Iterator[_Copies]:
        """Split the copies into parts of about `MAX_OCCLUDED_TOKENS` tokens.

        `lengths`: (N,) number of tokens of each row.
        """
        part = np.cumsum(lengths[self.rows], dtype=np.int64) // MAX_OCCLUDED_TOKENS
        for chosen in np.split(np.arange(len(self.rows)), np.flatnonzero(np.diff(part)) + 1):
            yield _Copies(self.rows[chosen], self.tokens[chosen])


def log_odds(scaled: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the log-odds (N,) of one class per row.

    `scaled`: (N, C) logits divided by the temperature. `classes`: (N,) class index of each row.

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
    """Return contributions as a list of floats, in which None replaces NaN (the token was not read).

    >>> with_none(np.array([0.5, np.nan]))
    [0.5, None]
    """
    return [None if math.isnan(value) else value for value in contributions.tolist()]


def apart_fields(encoders: Mapping[str, FieldEncoder]) -> list[str]:
    """Return the names of the fields whose contribution may differ from the contribution of the whole token.

    If there are several fields, the result has all fields. A single field is in the result only if it is a tree in
    which removing a node also removes other words.
    """
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
    """Return the contributions of the tokens of N encoded sequences.

    Occluding a token means removing the token from the sequence. A tree node is removed together with its descendants.
    If a sequence has only one token, a neutral token (see `FieldEncoder.neutral`) replaces the token. With `by_field`,
    each field of a token is also occluded separately: a neutral value replaces the value of the field.

    `score`: see `Score`. `tokens`: (M,) ascending indices of the tokens to occlude, None for all tokens. `tokens_read`:
    (N,) number of tokens after which the model stopped, None if the model reads all tokens. A token that the model did
    not read has the contribution NaN. `traces`: values that encoders need to remove a token (see `removal_traces`).
    `advance`: function that advances a progress bar by a number of explained rows. The number may be a fraction.
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
    removal = next(iter(encoders.values())).token_removal(sequences)  # the same for each field

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
    """Return copies of rows. Each copy lacks one token of its row. The result has the order of `copies`."""
    is_blank = removable.leaves_nothing[copies.tokens]
    removal = removable.without(copies.rows[~is_blank], copies.tokens[~is_blank])
    fields = {name: encoder.without_tokens(sequences.fields, removal) for name, encoder in encoders.items()}
    if removal.parents is not None:
        fields[PARENTS] = removal.parents
    result = Ragged(removal.offsets, fields)
    if not is_blank.any():
        return result
    # If the removal would leave an empty row, the row becomes a single neutral token. The neutral token is made from
    # the last token of the row, which is the only token or the root of a tree. The root's parent index, -1, stays
    # valid.
    last = sequences.offsets[copies.rows[is_blank] + 1] - 1
    blank = {name: encoder.neutral(sequences.fields[name][last]) for name, encoder in encoders.items()}
    if removal.parents is not None:
        blank[PARENTS] = sequences.fields[PARENTS][last]
    lengths = np.concatenate([result.lengths, np.ones(len(last), np.int64)])
    joined = {name: np.concatenate([values, blank[name]]) for name, values in fields.items()}
    # `joined` holds the shortened copies first, so the order of `copies` has to be restored.
    order = np.argsort(np.concatenate([np.flatnonzero(~is_blank), np.flatnonzero(is_blank)]))
    return take(Ragged(list_offsets(lengths), joined), order)


def _without_values(
    encoders: Mapping[str, FieldEncoder], sequences: Ragged, removable: TokenRemoval, name: str, copies: _Copies
) -> Ragged:
    """Return copies of rows. In each copy, the field `name` of one token has a neutral value.

    If several tokens share one value of the field, all of these tokens get the neutral value.
    """
    rows = Ragged(sequences.offsets, {**sequences.fields, OWNERS: removable.owners})
    result = take(rows, copies.rows)
    fields = dict(result.fields)
    owners = np.repeat(removable.owners[copies.tokens], result.lengths)
    places = np.flatnonzero(fields.pop(OWNERS) == owners)
    # The array is copied, because `take` returns the original arrays if each sequence is taken once.
    fields[name] = fields[name].copy()
    fields[name][places] = encoders[name].neutral(fields[name][places])
    return Ragged(result.offsets, fields)
