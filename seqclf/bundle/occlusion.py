"""Occlusion: the contribution of each token to a prediction, as the change when the token is left out.

The value that changes is the log-odds of the predicted class, log(p / (1 - p)), with the probability that predictions
show. For two classes it is the margin of the logits. A probability near 1 hardly moves, whatever is left out; log-odds
do not saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.removal import remove_tokens
from seqclf.data.storage.ragged import Ragged, take
from seqclf.errors import InputError

MAX_OCCLUDED_TOKENS = 500_000  # at a time, of all shortened copies together

# (copies, the row of each) → (M,) log-odds of the class that was predicted for the row.
Score = Callable[[Ragged, np.ndarray], np.ndarray]


class Contributions(NamedTuple):
    """Contributions of S tokens, rows end to end, in log-odds of the predicted class. Positive ones support it.

    `tokens`: (S,) for each token left out. `by_field`: field → (S,) for that field of one token, empty for sequences of
    one field. Contributions of fields do not add up to that of the token.
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


def check_explainable(encoders: Mapping[str, Encoder]) -> None:
    """Raise InputError unless a token can be left out of every field."""
    for name, encoder in encoders.items():
        if not encoder.may_be_cut:
            raise InputError(
                f"explain: not supported yet for the {encoder.field.kind} field {name}, where a token that is left out "
                "would break the parents of others; predict without explain"
            )


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


def occlude(
    encoders: Mapping[str, Encoder],
    sequences: Ragged,
    score: Score,
    *,
    by_field: bool,
    tokens: np.ndarray | None = None,
    advance: Callable[[float], None] = lambda rows: None,
) -> Contributions:
    """Contributions of the tokens of N encoded sequences.

    A token is removed, so that the sequence is shorter by one. The only token of a sequence cannot be: it becomes a
    token that says nothing (`Encoder.neutral`), as one field of a token does with `by_field`.

    `score`: also called for the complete rows. `tokens`: (M,) indices of the tokens to leave out, ascending; None for
    all. `advance`: called with the number of rows, in fractions, that were completed.
    """
    lengths = sequences.lengths
    complete = score(sequences, np.arange(len(sequences)))
    chosen = np.arange(int(lengths.sum())) if tokens is None else tokens
    everything = _Copies(np.searchsorted(sequences.offsets, chosen, side="right") - 1, chosen)
    fields = list(encoders) if by_field and len(encoders) > 1 else []
    rows_per_copy = len(lengths) / max(1, len(everything.rows) * (1 + len(fields)))

    def contributions(occluded: Callable[[_Copies], Ragged]) -> np.ndarray:
        changes = [np.empty(0)]
        for copies in everything.parts(lengths):
            if len(copies.rows):
                changes.append(complete[copies.rows] - score(occluded(copies), copies.rows))
                advance(len(copies.rows) * rows_per_copy)
        return np.concatenate(changes)

    by_token = contributions(partial(_without_token, encoders, sequences))
    by_name = {}
    for name in fields:
        by_name[name] = contributions(partial(_without_values, encoders, sequences, names=[name]))
    return Contributions(by_token, by_name)


def _without_token(encoders: Mapping[str, Encoder], sequences: Ragged, copies: _Copies) -> Ragged:
    """Copies without one token, in the order of `copies`."""
    alone = sequences.lengths[copies.rows] == 1
    shortened, blanked = (_Copies(copies.rows[mask], copies.tokens[mask]) for mask in (~alone, alone))
    positions = shortened.tokens - sequences.offsets[shortened.rows]
    removal = remove_tokens(sequences.offsets, shortened.rows, positions)
    fields = {name: encoder.without_tokens(sequences.fields, removal) for name, encoder in encoders.items()}
    result = Ragged(removal.offsets, fields)
    if not len(blanked.rows):
        return result
    single = _without_values(encoders, sequences, blanked, list(encoders))
    lengths = np.concatenate([result.lengths, single.lengths])
    joined = {name: np.concatenate([values, single.fields[name]]) for name, values in fields.items()}
    # Shortened copies come first in the joined ones, whatever their order among all copies.
    order = np.argsort(np.concatenate([np.flatnonzero(~alone), np.flatnonzero(alone)]))
    return take(Ragged(np.concatenate([[0], np.cumsum(lengths)]), joined), order)


def _without_values(encoders: Mapping[str, Encoder], sequences: Ragged, copies: _Copies, names: list[str]) -> Ragged:
    """Copies in which the fields `names` of one token say nothing."""
    result = take(Ragged(sequences.offsets, {name: sequences.fields[name] for name in encoders}), copies.rows)
    places = result.offsets[:-1] + copies.tokens - sequences.offsets[copies.rows]
    fields = dict(result.fields)
    for name in names:
        # A copy: `take` gives the sequences themselves where each is taken once.
        fields[name] = fields[name].copy()
        fields[name][places] = encoders[name].neutral(fields[name][places])
    return Ragged(result.offsets, fields)
