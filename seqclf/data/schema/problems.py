"""Problems of rows: the first reason why each row of a record batch cannot be used."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list, lengths_or_zero
from seqclf.data.schema.rows import Refusal, SourceRows
from seqclf.data.schema.schema import Field

BLANK_REASON = "is empty; a sequence needs at least one token"


class Problem(NamedTuple):
    """Reason why a row cannot be used, as a continuation of the column's name.

    `token`: index of the bad token among the S tokens of the record batch, None if the row as a whole is bad.
    """

    column: str
    reason: str
    token: int | None


class Problems:
    """The first problem of each row of a record batch."""

    def __init__(self, rows: int):
        self.first_problems: dict[int, Problem] = {}  # by row
        self.usable = np.ones(rows, dtype=bool)

    def mark(self, rows: np.ndarray, column: str, reason: str | list[str], tokens: np.ndarray | None = None) -> None:
        """Refuse rows that have no problem yet.

        `rows`: (K,) indices. `reason`: one for all, or a list of K. `tokens`: (K,) index of the bad token of each row.
        """
        # A loop is fast enough, as few rows are bad.
        for position, row in enumerate(rows.tolist()):
            if self.usable[row]:
                self.usable[row] = False
                token = None if tokens is None else int(tokens[position])
                self.first_problems[row] = Problem(
                    column, reason if isinstance(reason, str) else reason[position], token
                )

    def mark_tokens(self, tokens: np.ndarray, row_of_token: np.ndarray, column: str, reason: str) -> None:
        """Refuse the rows of bad tokens, each by its first one.

        `tokens`: (K,) indices of bad tokens, ascending. `row_of_token`: (S,).
        """
        # np.unique returns the first index of each row, as tokens ascend.
        rows, first = np.unique(row_of_token[tokens], return_index=True)
        self.mark(rows, column, reason, tokens[first])

    def refusals(self, batch: SourceRows) -> list[Refusal]:
        """Return a refusal for each bad row. For an event table it names the row of the bad event."""
        refusals = []
        event_rows = batch.event_row_numbers
        events = None if event_rows is None else np.diff(np.append(_first_events(batch), len(event_rows)))
        for row in sorted(self.first_problems):
            column, reason, token = self.first_problems[row]
            number = batch.row_numbers[row] if token is None or event_rows is None else event_rows[token]
            count = None if events is None else int(events[row])
            refusals.append(Refusal(batch.file_of(row), int(number), column, reason, None, count))
        return refusals


def _first_events(batch: SourceRows) -> np.ndarray:
    """(N,) index of the first event of each row of an event table."""
    lists = next(column for column in batch.columns.columns if pa.types.is_list(column.type))
    return lists.offsets.to_numpy()[:-1]


def true_rows(mask: pa.BooleanArray) -> np.ndarray:
    """Return the ascending positions where a mask is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


# Checks of numbers: vectors of the right width, and values that are present and finite.


def check_numbers(
    elements: pa.Array,
    row_of_token: np.ndarray,
    field: Field,
    problems: Problems,
    *,
    may_miss: bool,
    finite_as: type[np.floating],
) -> None:
    """Refuse rows with vectors of another width than the field's, or with values that are missing or not finite.

    `elements`: (S,) numbers, or lists of `field.width` numbers. `finite_as`: the type in which values must be finite.
    """
    token_of_value = None  # each value is a token
    if is_list(elements.type):
        widths = lengths_or_zero(elements)
        _check_widths(widths, row_of_token, field, problems)
        token_of_value = np.repeat(np.arange(len(widths)), widths)
        elements = pc.list_flatten(elements)
    elif (field.width or 1) != 1:  # plain numbers where vectors are expected
        reason = f"has tokens of 1 value where the field has {field.width}"
        problems.mark(np.unique(row_of_token), field.column, reason)
        return

    def mark_values(bad: np.ndarray, reason: str) -> None:
        tokens = bad if token_of_value is None else np.unique(token_of_value[bad])
        problems.mark_tokens(tokens, row_of_token, field.column, reason)

    if elements.null_count and not may_miss:
        mark_values(true_rows(elements.is_null()), "has an element that is missing or not a number")
    bad = np.flatnonzero(_not_finite(elements, may_miss, finite_as))
    if len(bad):
        reason = "has NaN, an infinite number, one beyond float32, or text that is not a number; replace it or remove "
        mark_values(bad, reason + "the row")


def _check_widths(widths: np.ndarray, row_of_token: np.ndarray, field: Field, problems: Problems) -> None:
    bad = np.flatnonzero(widths != field.width)
    rows, first = np.unique(row_of_token[bad], return_index=True)
    reasons = [f"has a token of {width} values where the field has {field.width}" for width in widths[bad[first]]]
    problems.mark(rows, field.column, reasons, bad[first])


def _not_finite(elements: pa.Array, may_miss: bool, finite_as: type[np.floating]) -> np.ndarray:
    """Mask of values that are not finite."""
    values = elements.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(values.astype(finite_as, copy=False))
    if may_miss:
        bad &= ~np.isnan(values)
    elif elements.null_count:  # numpy turns null into NaN; nulls have another reason
        bad &= elements.is_valid().to_numpy(zero_copy_only=False)
    return bad
