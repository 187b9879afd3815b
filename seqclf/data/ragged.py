"""Ragged arrays, which hold the tokens of all sequences end to end, and 64-bit hashes of sequences and values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest


class Ragged(NamedTuple):
    """N encoded sequences with S tokens in total.

    `offsets`: (N + 1,) int64; row i holds the tokens [offsets[i], offsets[i + 1]). `fields`: dict field → (S,) int32,
    (S, D) float32 or (S, K) int32 (see `EncodedField`). `static`: dict static field → (N,) int32 or (N, D) float32.

    >>> sequences = Ragged(np.array([0, 2, 3]), {"shop": np.array([4, 5, 6])})
    >>> len(sequences), sequences.lengths.tolist()
    (2, [2, 1])
    """

    offsets: np.ndarray
    fields: dict[str, np.ndarray]
    static: Mapping[str, np.ndarray] = {}  # no proxy, which processes cannot exchange

    @property
    def lengths(self) -> np.ndarray:
        """(N,) number of tokens in each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def take(sequences: Ragged, rows: np.ndarray) -> Ragged:
    """Copy the sequences at the (M,) positions `rows`, in this order. All rows in their order are not copied.

    >>> sequences = Ragged(np.array([0, 2, 3]), {"shop": np.array([4, 5, 6])})
    >>> last_first = take(sequences, np.array([1, 0]))
    >>> last_first.offsets.tolist(), last_first.fields["shop"].tolist()
    ([0, 1, 3], [6, 4, 5])
    """
    # A copy would read all memory-mapped tokens from disk.
    if len(rows) == len(sequences) and (np.diff(rows) == 1).all():
        return sequences
    starts, counts = sequences.offsets[rows], sequences.lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    tokens = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    return Ragged(
        offsets,
        {name: values[tokens] for name, values in sequences.fields.items()},
        {name: values[rows] for name, values in sequences.static.items()},
    )


def row_inputs(sequences: Ragged, row: int) -> dict[str, np.ndarray]:
    """Return dict field → values of one row: (T,) or (T, D) tokens, and (1,) or (1, D) for a static field."""
    start, stop = sequences.offsets[row : row + 2]
    tokens = {name: values[start:stop] for name, values in sequences.fields.items()}
    return {**tokens, **{name: values[row : row + 1] for name, values in sequences.static.items()}}


def is_list(kind: pa.DataType) -> bool:
    """Return True for a list, a large list or a list of fixed size."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def list_lengths(column: pa.Array) -> np.ndarray:
    """Return the (N,) int64 length of each list."""
    return pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def lengths_or_zero(column: pa.Array) -> np.ndarray:
    """Return the (N,) length of each list, and 0 for a null list."""
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)


def list_values(column: pa.Array) -> np.ndarray:
    """Return the (S,) values of all lists, joined end to end."""
    # The attribute `values` of a slice would return the values of the whole array.
    return pc.list_flatten(column).to_numpy(zero_copy_only=False)


def vector_values(column: pa.Array, width: int) -> np.ndarray:
    """Return the (S, width) float64 values of all lists, with NaN for missing values."""
    values = pc.list_flatten(column)
    if is_list(values.type):
        values = pc.list_flatten(values)
    return values.to_numpy(zero_copy_only=False).reshape(-1, width)


def list_offsets(lengths: np.ndarray) -> np.ndarray:
    """Return the (N + 1,) int64 offsets of rows with the (N,) `lengths`."""
    return np.concatenate([[0], np.cumsum(lengths)])


# Missing values: the index of the last present value, forward fill, and the time since the last present value.


def last_seen(seen: np.ndarray, lengths: np.ndarray, *, inclusive: bool) -> np.ndarray:
    """Return the (S, W) index of the last token of the same row with a value in the channel, or -1 if there is none.

    `seen`: (S, W) mask of present values. `lengths`: (N,) of the rows. `inclusive`: True if the token itself counts.

    >>> last_seen(np.array([[True], [False], [False]]), np.array([2, 1]), inclusive=True).tolist()
    [[0], [0], [-1]]
    """
    indices = np.where(seen, np.arange(len(seen))[:, None], -1)
    if not inclusive:
        indices = np.concatenate([np.full((1, seen.shape[1]), -1), indices[:-1]])
    # The running maximum continues from row to row, so indices of earlier rows are replaced by -1 below.
    latest = np.maximum.accumulate(indices, axis=0)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
    return np.where(latest >= starts, latest, -1)


def fill_forward(values: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Replace each missing value by the last one in the same row, or by NaN if there is none. Returns (S, W)."""
    latest = last_seen(seen, lengths, inclusive=True)
    return np.where(latest < 0, np.nan, np.take_along_axis(values, np.maximum(latest, 0), axis=0))


def elapsed_since_seen(seen: np.ndarray, lengths: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """Return the (S, W) time since the last earlier token of the row with a value, or else since the row's first token.

    `clock`: (S,) time of each token, in the unit of the result.
    """
    latest = last_seen(seen, lengths, inclusive=False)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return clock[:, None] - clock[np.where(latest < 0, starts[:, None], latest)]


def unmasked(cell: Any) -> Any:
    """Return a cell of a Python table or row with None for each value under a NumPy mask, also in a list of arrays.

    >>> unmasked([np.ma.array([1, 2], mask=[False, True]), 3]), unmasked("text")
    ([[1, None], 3], 'text')
    """
    if isinstance(cell, np.ma.MaskedArray):
        return (cell.astype("datetime64[us]") if cell.dtype.kind == "M" else cell).tolist()
    is_list = isinstance(cell, (list, tuple))
    if is_list and any(issubclass(kind, np.ma.MaskedArray) for kind in {*map(type, cell)}):
        return [unmasked(entry) for entry in cell]
    return cell


def output_column(values: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    """Return the column of an output (N,) or (N, D), null where `mask` is True."""
    if values.ndim == 1:
        return pa.array(values, mask=mask)
    flat, nulls = pa.array(np.ascontiguousarray(values).reshape(-1)), None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=nulls)


GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def hash_rows(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the (N,) uint64 hashes of rows; row i holds the tokens [offsets[i], offsets[i + 1]).

    `tokens`: (S,) or (S, C), compared by their bytes. `offsets`: (N + 1,).
    """
    tokens = np.ascontiguousarray(tokens)
    if not tokens.nbytes:
        return np.full(len(offsets) - 1, xxh3_64_intdigest(b""), np.uint64)
    data = tokens.data.cast("B")  # a slice of a memoryview is not copied
    bounds = (offsets * (tokens.nbytes // len(tokens))).tolist()
    hashes = (xxh3_64_intdigest(data[start:stop]) for start, stop in itertools.pairwise(bounds))
    return np.fromiter(hashes, np.uint64, len(bounds) - 1)


def mix(values: np.ndarray) -> np.ndarray:
    """Hash (N,) uint64 values with splitmix64.

    Reference: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    values = values + GOLDEN_GAMMA
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def hash_bytes(texts: Iterable[bytes]) -> np.ndarray:
    """Hash each of N byte strings, and return the (N,) uint64 hashes."""
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64)


class CodeHashes:
    """Hashes of category values, looked up by code. `codes`: dict value → code from 0, which may grow later.

    Codes depend on the order of the rows, hashes on the value only, so keys of rows are made of hashes.
    """

    def __init__(self, codes: Mapping[Any, int]):
        self.codes = codes
        self.hashes = np.empty(0, np.uint64)  # hash of each value; the index is the code of the value

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Return the (S,) uint64 hashes of the values that have the (S,) `codes`."""
        new_values = itertools.islice(self.codes, len(self.hashes), None)
        # The hash of null must differ from the hash of every text, including the empty text.
        hashes = hash_bytes(b"\0null" if value is None else f"{value}".encode() for value in new_values)
        if len(hashes):
            self.hashes = np.concatenate([self.hashes, hashes])
        return self.hashes[codes]
