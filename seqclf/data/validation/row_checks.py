"""One Arrow batch of canonical columns → the rows that can be used, and why the others cannot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding import tree_parser
from seqclf.data.reading.casts import ID, LABEL, raw_column
from seqclf.data.reading.record_batches import Refusal, SourceRows
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema

EMPTY_REASON = "has no token that the tokenizer knows; a sequence needs at least one step"


class Problem(NamedTuple):
    """Why a row cannot be used; `step`: which of all steps of the batch is to blame, where one is."""

    column: str
    reason: str
    step: int | None


class Problems:
    """The first problem of each row of a batch."""

    def __init__(self, rows: int):
        self.found: dict[int, Problem] = {}
        self.usable = np.ones(rows, dtype=bool)

    def mark(self, bad: np.ndarray, column: str, reason: str | list[str], steps: np.ndarray | None = None) -> None:
        """`bad`: indices of rows; `reason`: one for all, or one for each; `steps`: which step of each is to blame."""
        for position, row in enumerate(bad.tolist()):
            if self.usable[row]:
                self.usable[row] = False
                step = None if steps is None else int(steps[position])
                self.found[row] = Problem(column, reason if isinstance(reason, str) else reason[position], step)

    def mark_steps(self, bad: np.ndarray, owners: np.ndarray, column: str, reason: str) -> None:
        """`bad`: (K,) indices of steps, ascending; `owners`: (S,) the row of each step."""
        rows, first = np.unique(owners[bad], return_index=True)
        self.mark(rows, column, reason, bad[first])

    def refusals(self, batch: SourceRows) -> list[Refusal]:
        """One for each bad row; of an event table, it names the event that is to blame."""
        refused = []
        events = None if batch.event_rows is None else np.diff(np.append(_starts(batch), len(batch.event_rows)))
        for row in sorted(self.found):
            column, reason, step = self.found[row]
            number = batch.rows[row] if step is None or batch.event_rows is None else batch.event_rows[step]
            count = None if events is None else int(events[row])
            refused.append(Refusal(batch.file_of(row), int(number), column, reason, None, count))
        return refused


def _starts(batch: SourceRows) -> np.ndarray:
    lists = next(column for column in batch.columns.columns if pa.types.is_list(column.type))
    return lists.offsets.to_numpy()[:-1]


def inspect(columns: pa.RecordBatch, schema: Schema, labelled: bool = True) -> Problems:
    """Check each row of a batch against the schema; see `Problems`."""
    problems = Problems(columns.num_rows)
    if schema.group_by and ID in columns.schema.names:
        problems.mark(_where(columns.column(ID).is_null()), schema.group_by[0], "is empty; an event needs its group")
    if labelled and schema.label is not None:
        labels = columns.column(LABEL)
        empty = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(labels), ""), True)
        differs = ", or differs between the events of a group" if schema.group_by else ""
        problems.mark(_where(empty), schema.label, f"is empty{differs}; fill in the label or remove the row")
    lengths = None
    for field in schema.fields:
        column = columns.column(field.name)
        if field.running_text:
            _inspect_text(column, field, problems)
            continue
        _inspect_list(columns, column, field, problems)
        own = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if lengths is None:
            lengths, first = own, field
        else:
            bad = np.flatnonzero(problems.usable & (own != lengths))
            reasons = [
                f"has {own[row]} steps where {first.column} has {lengths[row]}; each step needs a value of every field"
                for row in bad
            ]
            problems.mark(bad, field.column, reasons)
    return problems


def _where(mask: pa.BooleanArray) -> np.ndarray:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _inspect_text(column: pa.Array, field: Field, problems: Problems) -> None:
    blank = _where(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True))
    problems.mark(blank, field.column, "is empty; a sequence needs at least one step")
    if field.kind == "tree":
        found = {row: tree_parser.problem(column[row].as_py()) for row in np.flatnonzero(problems.usable).tolist()}
        bad = {row: reason for row, reason in found.items() if reason is not None}
        problems.mark(np.array(list(bad), np.int64), field.column, list(bad.values()))


def _inspect_list(columns: pa.RecordBatch, column: pa.Array, field: Field, problems: Problems) -> None:
    what = {"category": f"a list of {field.values}s", "number": "a list of numbers", "time": "a list of times"}[
        field.kind
    ]
    missing = _where(column.is_null())
    texts = columns.column(raw_column(field.name)) if raw_column(field.name) in columns.schema.names else None
    reasons = []
    for row in missing:
        text = texts[int(row)].as_py() if texts is not None else None
        reasons.append(
            f"is not {what}: '{text}'; write lists as [a, b], or name what separates them: data.list_separator"
            if text is not None and text.strip()
            else "is empty; a sequence needs at least one step"
        )
    if len(field.columns) > 1:
        reasons = ["are empty, no lists of numbers, or lists of different lengths"] * len(missing)
    problems.mark(missing, field.column, reasons)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    problems.mark(np.flatnonzero(lengths == 0), field.column, "has no steps; a sequence needs at least one")
    elements = pc.list_flatten(column)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    may_miss = field.kind != "time" and field.option("missing") != "refuse"
    if elements.null_count and not may_miss:
        hint = "" if field.kind == "time" else f" (data.fields.{field.name}.missing says what to make of missing ones)"
        reason = f"has an element that is missing or does not belong in {what}{hint}"
        problems.mark_steps(_where(elements.is_null()), owners, field.column, reason)
    if field.kind != "category":
        _inspect_numbers(elements, owners, field, problems, may_miss)


def _inspect_numbers(elements: pa.Array, owners: np.ndarray, field: Field, problems: Problems, may_miss: bool) -> None:
    if is_vector(elements.type):
        widths = pc.fill_null(pc.list_value_length(elements), 0).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(widths != field.width)
        rows, first = np.unique(owners[bad], return_index=True)
        shown = [f"has a step of {width} values where the field has {field.width}" for width in widths[bad[first]]]
        problems.mark(rows, field.column, shown, bad[first])
        of_step = np.repeat(np.arange(len(widths)), widths)
        elements = pc.list_flatten(elements)
    elif field.width != 1:
        problems.mark(np.unique(owners), field.column, f"has steps of 1 value where the field has {field.width}")
        return
    else:
        of_step = None
    if elements.null_count and not may_miss:
        bad = _where(elements.is_null())
        bad = bad if of_step is None else np.unique(of_step[bad])
        problems.mark_steps(bad, owners, field.column, "has an element that is missing or no number")
    values = elements.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        wrong = ~np.isfinite(values.astype(np.float32)) if field.kind == "number" else ~np.isfinite(values)
    if may_miss:
        wrong &= ~np.isnan(values)
    elif elements.null_count:
        wrong &= elements.is_valid().to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(wrong)
    if len(bad):
        bad = bad if of_step is None else np.unique(of_step[bad])
        reason = "has NaN, an infinite number, one beyond float32, or text that is none; replace it or remove the row"
        problems.mark_steps(bad, owners, field.column, reason)


def is_vector(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def flatten(column: pa.Array, field: Field) -> tuple[np.ndarray, pa.Array | np.ndarray]:
    """Lengths (N,) and the steps of accepted rows, end to end: (S,) values, or (S, width) float64 for numbers, with NaN
    where one is missing."""
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = pc.list_flatten(column)
    if field.kind == "category":
        return lengths, elements
    if is_vector(elements.type):
        elements = pc.list_flatten(elements)
    return lengths, elements.to_numpy(zero_copy_only=False).reshape(-1, field.width or 1)


def too_long_reason(lengths: np.ndarray, limit: int | None) -> str:
    longest = int(lengths.max())
    return (
        f"has more than data.max_length={limit} steps (the longest {longest}); "
        "set data.truncate=keep_first or keep_last, or raise data.max_length"
    )
