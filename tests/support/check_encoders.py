"""Checks that an encoder keeps the promises of the interface of a field kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import encode, encode_staged, fit_encoders, load_encoders, make_encoders
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import input_axes, kind_of
from seqclf.data.ragged import Ragged, take
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION


def check_encoders(fields: Sequence[Field], columns: pa.RecordBatch) -> dict[str, FieldEncoder]:
    """Fit the encoders of `fields` on canonical columns, check the encoders, and return the encoders.

    A row must be encoded to the same arrays in each of these cases: from a staged column, from a canonical column, in a
    record batch of one row, and by a restored encoder. The arrays must have the shapes and types that `spec` describes.
    `decode` must return one text per token. Raises AssertionError if a check fails.

    >>> amount = Field("amount", "number", ("amount",), width=1)
    >>> sorted(check_encoders([amount], pa.record_batch({"amount": [[1.0, 5.0], [2.0]]})))
    ['amount']
    """
    encoders = make_encoders(fields)
    staged = pa.record_batch({name: encoder.stage(columns.column(name)) for name, encoder in encoders.items()})
    for name, encoder in encoders.items():
        keys = encoder.token_keys(staged.column(name))
        assert keys.dtype == np.uint64, f"{name}: token_keys must be uint64, not {keys.dtype}"
    fit_encoders(encoders, lambda *names: iter([staged.select(list(names))]))
    together = encode(encoders, columns, NO_TRUNCATION).sequences
    _check_arrays(encoders, together)
    _check_equal(together, encode_staged(encoders, staged, NO_TRUNCATION).sequences, "encode and encode_staged differ")
    states = json.loads(json.dumps({name: encoder.state() for name, encoder in encoders.items()}))
    restored = load_encoders(fields, states.__getitem__)
    _check_equal(together, encode(restored, columns, NO_TRUNCATION).sequences, "a restored encoder differs")
    for row in range(columns.num_rows):
        alone = encode(encoders, columns.slice(row, 1), NO_TRUNCATION).sequences
        _check_equal(take(together, np.array([row])), alone, f"row {row} alone is encoded differently")
    _check_single_tokens(encoders, columns, together)
    for name, encoder in encoders.items():
        texts = encoder.decode(together.fields)
        assert len(texts) == together.offsets[-1], f"{name}: decode must return a text for each token"
        tokens = together.fields[name]
        neutral = encoder.neutral(tokens)
        assert neutral.dtype == tokens.dtype and neutral.shape == tokens.shape, f"{name}: neutral must keep the shape"
    return encoders


def _check_single_tokens(encoders: Mapping[str, FieldEncoder], columns: pa.RecordBatch, together: Ragged) -> None:
    """Check that the first token of a row is encoded in the same way if it is the only token of the row.

    The check runs only if all encoders set `encodes_token_by_token`.
    """
    if not all(encoder.encodes_token_by_token for encoder in encoders.values()):
        return
    first = pa.record_batch({name: pc.list_slice(columns.column(name), 0, 1) for name in encoders})
    alone = encode(encoders, first, NO_TRUNCATION).sequences
    starts = together.offsets[:-1]
    expected = Ragged(np.arange(len(starts) + 1), {name: values[starts] for name, values in together.fields.items()})
    _check_equal(expected, alone, "a token alone is encoded differently; set encodes_token_by_token = False")


def _check_arrays(encoders: Mapping[str, FieldEncoder], sequences: Ragged) -> None:
    for name, encoder in encoders.items():
        spec, array = encoder.spec(), sequences.fields[name]
        assert spec["name"] == name, f"{name}: spec names the field {spec['name']}"
        axes = input_axes(spec)[2:]
        assert array.ndim == 1 + len(axes), f"{name}: the array has {array.ndim} axes, spec says {1 + len(axes)}"
        stored = np.float32 if kind_of(spec).has_numbers else np.int32
        assert array.dtype == stored, f"{name}: the array is {array.dtype}, not {np.dtype(stored)}"
        if kind_of(spec).has_numbers:
            assert array.shape[1] == spec["width"], f"{name}: {array.shape[1]} channels, spec says {spec['width']}"
            assert np.isfinite(array).all(), f"{name}: the array holds NaN or infinite numbers"
        else:
            ids = array.ravel().tolist()
            assert min(ids, default=0) >= 0 and max(ids, default=0) < spec["size"], f"{name}: an id is of no value"


def _check_equal(first: Ragged, second: Ragged, problem: str) -> None:
    assert first.offsets.tolist() == second.offsets.tolist(), f"{problem}: other lengths"
    for name, array in first.fields.items():
        other = second.fields[name]
        if array.ndim == 2 and array.dtype != np.float32:  # arrays of sets may have different numbers of empty slots
            array, other = (
                np.pad(ids, ((0, 0), (0, max(array.shape[1], other.shape[1]) - ids.shape[1]))) for ids in (array, other)
            )
        assert np.array_equal(array, other), f"{problem}: {name}"
