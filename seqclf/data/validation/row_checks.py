"""Row checks: the rows of a record batch that can be used, and the reasons why others cannot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding import tree_parser
from seqclf.data.reading.casts import ID, LABEL, raw_column
from seqclf.data.reading.record_batches import Refusal, SourceRows
from seqclf.data.schema.cell_types import is_list
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema

EMPTY_REASON = "has no token that the tokenizer knows; a sequence needs at least one"
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


def inspect(columns: pa.RecordBatch, schema: Schema, labelled: bool = True) -> Problems:
    """Check each row of canonical columns against the schema. `labelled`: check the labels too."""
    problems = Problems(columns.num_rows)
    if schema.group_by and ID in columns.schema.names:
        ungrouped = _true_rows(columns.column(ID).is_null())
        problems.mark(ungrouped, schema.group_by[0], "is empty; an event needs its group")
    if labelled and schema.label is not None:
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(columns.column(LABEL)), ""), True)
        differs = ", or differs between the events of a group" if schema.group_by else ""
        problems.mark(_true_rows(blank), schema.label, f"is empty{differs}; fill in the label or remove the row")
    for field in schema.fields:
        column = columns.column(field.name)
        if field.running_text:
            _inspect_text(column, field, problems)
        else:
            _inspect_list(columns, column, field, problems)
            if field is not schema.fields[0]:
                _inspect_lengths(columns, schema.fields[0], field, problems)
    return problems


def _true_rows(mask: pa.BooleanArray) -> np.ndarray:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _lengths_or_zero(column: pa.Array) -> np.ndarray:
    """(N,) length of each list, 0 for null."""
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)


def _inspect_lengths(columns: pa.RecordBatch, first: Field, field: Field, problems: Problems) -> None:
    """Refuse rows in which `field` has another number of tokens than the `first` field."""
    lengths, expected = (_lengths_or_zero(columns.column(name)) for name in (field.name, first.name))
    bad = np.flatnonzero(problems.usable & (lengths != expected))
    reasons = [
        f"has {lengths[row]} tokens where {first.column} has {expected[row]}; each token needs a value of every field"
        for row in bad
    ]
    problems.mark(bad, field.column, reasons)


def _inspect_text(column: pa.Array, field: Field, problems: Problems) -> None:
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
    problems.mark(_true_rows(blank), field.column, BLANK_REASON)
    if field.kind == "tree":
        rows = np.flatnonzero(problems.usable).tolist()  # blank rows have their reason already
        reasons = {row: tree_parser.problem(column[row].as_py()) for row in rows}
        malformed = {row: reason for row, reason in reasons.items() if reason is not None}
        problems.mark(np.array(list(malformed), np.int64), field.column, list(malformed.values()))


def _inspect_list(columns: pa.RecordBatch, column: pa.Array, field: Field, problems: Problems) -> None:
    kinds = {"category": f"a list of {field.values}s", "number": "a list of numbers", "time": "a list of times"}
    expected = kinds[field.kind]
    null_rows = _true_rows(column.is_null())
    problems.mark(null_rows, field.column, _null_reasons(columns, field, null_rows, expected))
    lengths = _lengths_or_zero(column)
    problems.mark(np.flatnonzero(lengths == 0), field.column, "has no tokens; a sequence needs at least one")
    elements = pc.list_flatten(column)
    row_of_token = np.repeat(np.arange(len(lengths)), lengths)
    may_miss = field.kind != "time" and field.option("missing") != "refuse"
    if elements.null_count and not may_miss:
        hint = "" if field.kind == "time" else f" (set data.fields.{field.name}.missing if values may be missing)"
        reason = f"has an element that is missing or does not belong in {expected}{hint}"
        problems.mark_tokens(_true_rows(elements.is_null()), row_of_token, field.column, reason)
    if field.kind != "category":
        _inspect_numbers(elements, row_of_token, field, problems, may_miss)


def _null_reasons(columns: pa.RecordBatch, field: Field, rows: np.ndarray, expected: str) -> list[str]:
    """A reason for each of the rows whose list is null: the cell was empty, or could not be cast."""
    if len(field.columns) > 1:
        return ["are empty, not lists of numbers, or lists of different lengths"] * len(rows)
    # Text cells are carried along as they were written, to be quoted here.
    raw = raw_column(field.name)
    texts = columns.column(raw).take(pa.array(rows)).to_pylist() if raw in columns.schema.names else [None] * len(rows)
    return [
        f"is not {expected}: '{text}'; write lists as [a, b], or name what separates them: data.list_separator"
        if text is not None and text.strip()
        else BLANK_REASON
        for text in texts
    ]


def _inspect_numbers(
    elements: pa.Array, row_of_token: np.ndarray, field: Field, problems: Problems, may_miss: bool
) -> None:
    """Refuse rows with vectors of another width than the field's, or with values that are missing or not finite."""
    token_of_value = None  # each value is a token
    if is_list(elements.type):
        widths = _lengths_or_zero(elements)
        _inspect_widths(widths, row_of_token, field, problems)
        token_of_value = np.repeat(np.arange(len(widths)), widths)
        elements = pc.list_flatten(elements)
    elif field.width != 1:  # plain numbers where vectors are expected
        reason = f"has tokens of 1 value where the field has {field.width}"
        problems.mark(np.unique(row_of_token), field.column, reason)
        return

    def mark_values(bad: np.ndarray, reason: str) -> None:
        tokens = bad if token_of_value is None else np.unique(token_of_value[bad])
        problems.mark_tokens(tokens, row_of_token, field.column, reason)

    if elements.null_count and not may_miss:
        mark_values(_true_rows(elements.is_null()), "has an element that is missing or not a number")
    bad = np.flatnonzero(_not_finite(elements, field, may_miss))
    if len(bad):
        reason = "has NaN, an infinite number, one beyond float32, or text that is not a number; replace it or remove "
        mark_values(bad, reason + "the row")


def _inspect_widths(widths: np.ndarray, row_of_token: np.ndarray, field: Field, problems: Problems) -> None:
    bad = np.flatnonzero(widths != field.width)
    rows, first = np.unique(row_of_token[bad], return_index=True)
    reasons = [f"has a token of {width} values where the field has {field.width}" for width in widths[bad[first]]]
    problems.mark(rows, field.column, reasons, bad[first])


def _not_finite(elements: pa.Array, field: Field, may_miss: bool) -> np.ndarray:
    """Mask of values that are not finite. Numbers must be finite as float32, which the model gets, times as float64."""
    values = elements.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(values.astype(np.float32)) if field.kind == "number" else ~np.isfinite(values)
    if may_miss:
        bad &= ~np.isnan(values)
    elif elements.null_count:  # numpy turns null into NaN; nulls have another reason
        bad &= elements.is_valid().to_numpy(zero_copy_only=False)
    return bad


def too_long_reason(lengths: np.ndarray, limit: int | None) -> str:
    """Return the reason to refuse sequences of more than `limit` tokens. `lengths`: (N,) before truncation."""
    longest = int(lengths.max())
    return (
        f"has more than data.max_length={limit} tokens (the longest {longest}); "
        "set data.truncate=keep_first or keep_last, or raise data.max_length"
    )
