"""Problems of rows: the first reason for rejecting each row of a record batch, and the quarantine of rejected rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list, lengths_or_zero
from seqclf.data.schema.rows import Refusal, SourceRows
from seqclf.data.schema.schema import Field

BLANK_REASON = "is empty; a sequence needs at least one token"
BY_SPACES = "\"data.list_separator=' '\""  # example for error messages, quoted for the shell and for Hydra


class Problem(NamedTuple):
    """The reason why a row is rejected (see `Refusal`). `token`: index of an invalid one among all of the batch."""

    column: str
    reason: str
    token: int | None


class Problems:
    """Collects the first problem of each invalid row of a record batch."""

    def __init__(self, rows: int):
        self.first_problems: dict[int, Problem] = {}  # row → problem
        self.usable = np.ones(rows, dtype=bool)

    def mark(self, rows: np.ndarray, column: str, reason: str | list[str], tokens: np.ndarray | None = None) -> None:
        """Mark (K,) rows as invalid, unless they are. `reason`: one, or a list of K. `tokens`: (K,) invalid tokens."""
        for position, row in enumerate(rows.tolist()):
            if self.usable[row]:
                self.usable[row] = False
                token = None if tokens is None else int(tokens[position])
                of_row = reason if isinstance(reason, str) else reason[position]
                self.first_problems[row] = Problem(column, of_row, token)

    def mark_tokens(self, tokens: np.ndarray, row_of_token: np.ndarray, column: str, reason: str) -> None:
        """Mark each row of invalid tokens, of which its problem names the first.

        `tokens`: (K,) ascending indices of invalid tokens. `row_of_token`: (S,) index of the row of each token.
        """
        rows, first = np.unique(row_of_token[tokens], return_index=True)
        self.mark(rows, column, reason, tokens[first])

    def refusals(self, batch: SourceRows) -> list[Refusal]:
        """Return one `Refusal` per invalid row, with the row number of the invalid event in an event table."""
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
    lists = next(column for column in batch.columns.columns if pa.types.is_list(column.type))
    return lists.offsets.to_numpy()[:-1]


def true_rows(mask: pa.BooleanArray) -> np.ndarray:
    """Return the ascending positions at which a mask is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


# Checks of numbers: a vector must have the field's width, and every value must be present and finite.


def check_numbers(
    elements: pa.Array,
    row_of_token: np.ndarray,
    field: Field,
    problems: Problems,
    *,
    may_miss: bool,
    finite_as: type[np.floating],
) -> None:
    """Mark a row as invalid if a vector has a wrong width, or if a value is missing or not finite.

    `elements`: (S,) numbers, or vectors of `field.width`. `row_of_token`: (S,). `may_miss`: True if values may be
    missing. `finite_as`: float type in which values must be finite.
    """
    token_of_value = None  # each value is a token of its own
    if is_list(elements.type):
        widths = lengths_or_zero(elements)
        _check_widths(widths, row_of_token, field, problems)
        token_of_value = np.repeat(np.arange(len(widths)), widths)
        elements = pc.list_flatten(elements)
    elif (field.width or 1) != 1:  # elements are numbers, but the field expects vectors
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
    """Return a mask of values that are not finite, without nulls and, if `may_miss`, without NaN."""
    values = elements.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(values.astype(finite_as, copy=False))
    if may_miss:
        bad &= ~np.isnan(values)
    elif elements.null_count:  # numpy converts null to NaN, but nulls are marked elsewhere
        bad &= elements.is_valid().to_numpy(zero_copy_only=False)
    return bad


class Quarantine:
    """Collects rejected rows while sources are read. `max_bad_share`: maximum fraction of them in a source.

    `on_bad_row`: `quarantine` and `drop` skip rejected rows, `error` stops the run at the first one.
    """

    def __init__(self, on_bad_row: str, max_bad_share: float):
        self.on_bad_row = on_bad_row
        self.max_bad_share = max_bad_share
        self.refusals: list[Refusal] = []

    def add(self, refusals: list[Refusal]) -> None:
        """Collect rejected rows. If `on_bad_row` is `error`, raise InputError for the first rejected row."""
        if refusals and self.on_bad_row == "error":
            raise refusals[0].error(" (data.on_bad_row=quarantine goes on without such rows)")
        self.refusals += refusals

    def check_share(self, source: str, rows: int, refused: list[Refusal]) -> None:
        """Raise InputError if too large a fraction of the `rows` of one source was rejected."""
        # The error quotes the first rejected row, because all rows are often rejected for the same reason.
        if refused and len(refused) > self.max_bad_share * rows:
            limit = f"data.max_bad_share={self.max_bad_share}; fix them or raise data.max_bad_share"
            raise refused[0].error(f" ({len(refused)} of {rows} rows of {source} are refused, more than {limit})")

    def write(self, path: Path) -> None:
        """If `on_bad_row` is `quarantine`, write rejected rows, if there are any, to `path` as lines of JSON."""
        if self.refusals and self.on_bad_row == "quarantine":
            with path.open("w") as file:
                for refusal in self.refusals:
                    entry = {key: value for key, value in refusal._asdict().items() if value is not None}
                    file.write(json.dumps(entry) + "\n")
