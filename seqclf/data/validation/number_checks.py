"""Checks of numbers: vectors of the right width, and values that are present and finite."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.list_columns import lengths_or_zero
from seqclf.data.schema.cell_types import is_list
from seqclf.data.schema.fields import Field
from seqclf.data.validation.problems import Problems, true_rows


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
