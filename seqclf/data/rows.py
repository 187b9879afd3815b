"""One Arrow batch of canonical columns → the rows that can be used, and why the others cannot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.canonical import LABEL, raw
from seqclf.data.schema import Field, Schema


class Refusal(NamedTuple):
    """A row that cannot be used. `row` counts from 1 within `file`, the header not counted."""

    file: str
    row: int
    column: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: row {self.row}: {self.column} {self.reason}"


class Problems:
    """The first problem of each row of a batch."""

    def __init__(self, rows: int):
        self.found: dict[int, tuple[str, str]] = {}
        self.usable = np.ones(rows, dtype=bool)

    def mark(self, bad: np.ndarray, column: str, reason: str | list[str]) -> None:
        """`bad`: indices of rows; `reason`: one for all, or one for each."""
        for position, row in enumerate(bad.tolist()):
            if self.usable[row]:
                self.usable[row] = False
                self.found[row] = (column, reason if isinstance(reason, str) else reason[position])

    def refusals(self, file: str, numbers: np.ndarray) -> list[Refusal]:
        return [Refusal(file, int(numbers[row]), *self.found[row]) for row in sorted(self.found)]


def inspect(batch: pa.RecordBatch, schema: Schema, labelled: bool = True) -> Problems:
    """Check each row of a batch against the schema; see `Problems`."""
    problems = Problems(batch.num_rows)
    if labelled and schema.label is not None:
        labels = batch.column(LABEL)
        empty = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(labels), ""), True)
        problems.mark(_where(empty), schema.label, "is empty; fill in the label or remove the row")
    lengths = None
    for field in schema.fields:
        column = batch.column(field.name)
        if field.kind == "text":
            blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
            problems.mark(_where(blank), field.column, "is empty; a sequence needs at least one step")
            continue
        _inspect_list(batch, column, field, problems)
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


def _inspect_list(batch: pa.RecordBatch, column: pa.Array, field: Field, problems: Problems) -> None:
    what = {"category": f"a list of {field.values}s", "number": "a list of numbers"}[field.kind]
    missing = _where(column.is_null())
    texts = batch.column(raw(field.name)) if raw(field.name) in batch.schema.names else None
    reasons = []
    for row in missing:
        text = texts[int(row)].as_py() if texts is not None else None
        reasons.append(
            f"is not {what}: '{text}'; write lists as [a, b], or name what separates them: data.list_separator"
            if text is not None and text.strip()
            else "is empty; a sequence needs at least one step"
        )
    problems.mark(missing, field.column, reasons)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    problems.mark(np.flatnonzero(lengths == 0), field.column, "has no steps; a sequence needs at least one")
    elements = pc.list_flatten(column)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    problems.mark(
        np.unique(owners[_where(elements.is_null())]),
        field.column,
        f"has an element that is missing or does not belong in {what}",
    )
    if field.kind == "number":
        _inspect_numbers(elements, owners, field, problems)


def _inspect_numbers(elements: pa.Array, owners: np.ndarray, field: Field, problems: Problems) -> None:
    if pa.types.is_list(elements.type) or pa.types.is_large_list(elements.type):
        widths = pc.fill_null(pc.list_value_length(elements), 0).to_numpy(zero_copy_only=False)
        bad, where = np.unique(owners[widths != field.width], return_index=True)
        shown = widths[widths != field.width][where]
        problems.mark(
            bad, field.column, [f"has a step of {width} values where the field has {field.width}" for width in shown]
        )
        owners = np.repeat(owners, widths)
        elements = pc.list_flatten(elements)
    elif field.width != 1:
        problems.mark(np.unique(owners), field.column, f"has steps of 1 value where the field has {field.width}")
    problems.mark(
        np.unique(owners[_where(elements.is_null())]), field.column, "has an element that is missing or no number"
    )
    values = pc.fill_null(elements, 0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    problems.mark(
        np.unique(owners[~finite]),
        field.column,
        "has NaN, an infinite number or one beyond float32; replace it or remove the row",
    )


def flatten(column: pa.Array, field: Field) -> tuple[np.ndarray, pa.Array | np.ndarray]:
    """Lengths (N,) and the steps of accepted rows, end to end: (S,) values, or (S, width) float64 for numbers."""
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = pc.list_flatten(column)
    if field.kind == "category":
        return lengths, elements
    if pa.types.is_list(elements.type) or pa.types.is_large_list(elements.type):
        elements = pc.list_flatten(elements)
    return lengths, elements.to_numpy(zero_copy_only=False).reshape(-1, field.width or 1)


def too_long_reason(lengths: np.ndarray, limit: int | None) -> str:
    longest = int(lengths.max())
    return (
        f"has more than data.max_length={limit} steps (the longest {longest}); "
        "set data.truncate=keep_first or keep_last, or raise data.max_length"
    )
