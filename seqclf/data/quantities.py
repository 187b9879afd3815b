"""Decide by the training rows whether whole numbers are codes or quantities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import declared_as
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.ragged import list_lengths
from seqclf.data.schema.casts import LABEL
from seqclf.data.schema.cell_types import MAX_CODES
from seqclf.data.schema.schema import Field

MAX_ROWS, MAX_TOKENS = 10_000, 300_000  # rows and tokens of the comparison
MAX_CLASSES = 8  # outcomes of a token; rarer ones count as the last
PARTS = 5  # parts of the rows; the other parts predict the outcomes of a part
PRIOR_TOKENS = 5.0  # weight of the overall frequencies in the frequencies of a value
MIN_Z = 3.0  # standard errors of a gain beyond chance
# Gain by close values ÷ gain by the value itself, above which integers are quantities, and the least gain that counts.
LABEL_LEVEL = (0.9, 0.0)
NEXT_LEVEL = (0.5, 0.02)  # the next value is a little less likely to be near the one that it must differ from


class Gain(NamedTuple):
    """Gain in held-out log likelihood of an outcome over its overall frequency, as mean and z of the rows."""

    mean: float
    z: float


def integer_fields(encoders: Mapping[str, FieldEncoder], declared: Mapping[str, Any]) -> dict[str, CategoryEncoder]:
    """Return the fields that were inferred as codes and may be quantities: more than MAX_CODES distinct integers.

    `declared`: the option data.fields. A field that is declared without a kind and options of codes is inferred too.
    """
    return {
        name: encoder
        for name, encoder in encoders.items()
        if isinstance(encoder, CategoryEncoder) and encoder.integers and not encoder.field.static
        if is_inferred(declared.get(name, {})) and len(encoder.vocabulary.codes) > MAX_CODES
    }


def is_inferred(spec: Any) -> bool:
    """Return True if the declaration of a field leaves open whether whole numbers are codes."""
    return isinstance(spec, Mapping) and spec.keys() <= {"column", "columns", "missing", "separator"}


def as_number(field: Field) -> Field:
    """Return the number field of an integer category."""
    missing = {"missing": "last"} if field.options.get("missing") == "value" else {}
    return replace(field, kind="number", values="string", options=missing)


def quantities(fields: Mapping[str, CategoryEncoder], rows: pa.Table) -> tuple[list[str], str]:
    """Return the names of the fields that are quantities, and a line that says what was decided and why.

    `rows`: training rows with LABEL and staged columns of provisional codes (see `Vocabulary`).
    """
    _, labels = np.unique(rows.column(LABEL).to_numpy(zero_copy_only=False), return_inverse=True)
    found, shown = [], []
    for name, encoder in fields.items():
        column = pc.list_slice(rows.column(name).combine_chunks(), 0, MAX_TOKENS // len(labels))
        known = np.array([np.nan if value is None else value for value in encoder.vocabulary.codes], np.float64)
        row = np.repeat(np.arange(len(labels)), list_lengths(column))
        is_quantity, reason = decide(known[pc.list_flatten(column).to_numpy()], row, labels)
        found += [name] * is_quantity
        shown.append(f"{name} ({'quantity' if is_quantity else 'codes'}, {reason})")
    name = found[0] if found else next(iter(fields))
    other = declared_as(fields[name].field, "category" if found else "number")
    return found, f"whole numbers: {', '.join(shown)}; {other} says otherwise"


def decide(values: np.ndarray, row: np.ndarray, labels: np.ndarray) -> tuple[bool, str]:
    """Return True if integers are quantities, and the reason.

    Integers are quantities if the closest other values tell a held-out label about as well as the value itself, which
    is as good as none for codes. If neither tells the label, the next different value is predicted instead.

    `values`: (S,) float64, NaN where missing. `row`: (S,) ascending sequence of each token. `labels`: (N,) class codes.

    >>> rng = np.random.default_rng(0)
    >>> labels, row = rng.integers(0, 2, 900), np.arange(9000) // 10
    >>> values = rng.normal(400 + 90 * labels[row], 100).round()
    >>> decide(values, row, labels)[0], decide(rng.permutation(2000)[values.astype(int)], row, labels)[0]
    (True, False)
    """
    seen = ~np.isnan(values)
    distinct, codes = np.unique(values[seen], return_inverse=True)
    row = row[seen]
    if len(distinct) <= MAX_CODES:
        return False, "few"
    rank = np.argsort(np.argsort(-np.bincount(labels), kind="stable"))  # of each class, 0 for the most frequent one
    by_label = _told(codes, np.minimum(rank, MAX_CLASSES - 1)[labels[row]], row, LABEL_LEVEL)
    if by_label is not None:
        return by_label, "close values go with the same labels" if by_label else "each goes with its own labels"
    before = np.flatnonzero((row[1:] == row[:-1]) & (codes[1:] != codes[:-1]))
    following = codes[before + 1]
    edges = np.quantile(following, np.linspace(0, 1, MAX_CLASSES + 1)[1:-1]) if len(before) else following
    by_next = _told(codes[before], np.searchsorted(edges, following, side="right"), row[before], NEXT_LEVEL)
    if by_next is not None:
        return by_next, "the next value is close" if by_next else "each has its own next values"
    return False, "the rows do not tell"


def _told(codes: np.ndarray, outcome: np.ndarray, row: np.ndarray, level: tuple[float, float]) -> bool | None:
    """None if neither close values nor the value itself tell the outcome. `level`: see LABEL_LEVEL."""
    if len(np.unique(row)) < 2 * PARTS:
        return None
    ratio, least = level
    own, close = _gains(codes, outcome, row)
    if max(own.z, close.z) < MIN_Z or max(own.mean, close.mean) < least:
        return None
    return close.z >= MIN_Z and close.mean >= ratio * own.mean


def _gains(codes: np.ndarray, outcome: np.ndarray, row: np.ndarray) -> tuple[Gain, Gain]:
    """Return the gain by the frequencies of a value, and the best gain by those of the values around it."""
    size, classes = int(codes.max()) + 1, int(outcome.max()) + 1
    widths = [width for width in 2 ** np.arange(8) if 4 * width < size]
    part = np.random.default_rng(0).permutation(int(row.max()) + 1)[row] % PARTS
    counts = np.bincount((part * size + codes) * classes + outcome, minlength=PARTS * size * classes)
    counts = counts.reshape(PARTS, size, classes)
    own, close = np.zeros(len(codes)), np.zeros((len(widths), len(codes)))
    for held_out in range(PARTS):
        at = np.flatnonzero(part == held_out)
        value, told = codes[at], outcome[at]
        others = counts.sum(0) - counts[held_out]
        prior = (others.sum(0) + 1) / (others.sum() + classes)
        sums = np.vstack([np.zeros(classes), others.cumsum(0)])

        def gain(of_values: np.ndarray, value=value, told=told, prior=prior) -> np.ndarray:
            tokens = of_values.sum(1)[value] + PRIOR_TOKENS
            return np.log((of_values[value, told] / prior[told] + PRIOR_TOKENS) / tokens)

        own[at] = gain(others)
        for place, width in enumerate(widths):
            first, end = np.arange(size) - width, np.arange(size) + width + 1
            close[place, at] = gain(sums[end.clip(max=size)] - sums[first.clip(0)] - others)
    tokens = np.bincount(row)

    def of_rows(gains: np.ndarray) -> Gain:
        means = np.bincount(row, gains)[tokens > 0] / tokens[tokens > 0]
        return Gain(float(means.mean()), float(means.mean() / (means.std() / np.sqrt(len(means)) + 1e-12)))

    return of_rows(own), max(map(of_rows, close))
