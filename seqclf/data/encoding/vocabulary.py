"""Vocabularies: values → ids, by frequency in training or by hashing.

Used by categories and sets. Texts and trees fit vocabularies of words, in `kinds.text` and `kinds.tree`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.hashing import CodeHashes
from seqclf.data.schema.field_options import Option, count_option
from seqclf.errors import InputError
from seqclf.system.state_validation import require

MISSING_CODE = 0
# Options of the field kinds with a vocabulary.
VOCABULARY_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {"min_count": count_option(1), "max_size": count_option(), "hash_size": count_option()}
)


class Vocabulary:
    """Values → ids. Id 1 is the most frequent value, id 0 stands for unknown ones.

    Values seen fewer than `min_count` times in training are unknown too, as are those beyond the `max_size` most
    frequent. A null is a value like any other.

    With `hash_size` nothing is counted or stored: the id is 1 + a hash of the value below that size. Different values
    may then share an id.

    `integers`: the values are integers, not strings.

    >>> vocabulary = Vocabulary(integers=False)
    >>> vocabulary.fit([vocabulary.codes_of(pa.array(["fuel", "cafe", "cafe"]))])
    >>> vocabulary.ids_of(pa.array(["cafe", "hotel", "fuel"])).tolist()
    [1, 0, 2]
    """

    def __init__(
        self, *, integers: bool, min_count: int = 1, max_size: int | None = None, hash_size: int | None = None
    ):
        self.integers = integers
        self.min_count = min_count
        self.max_size = max_size
        self.hash_size = hash_size
        # Value → provisional code. Codes count from 0 and are never reused, as staged files hold them.
        self._codes: dict[Any, int] = {None: MISSING_CODE}
        self._hashes = CodeHashes(self._codes)
        self._ids = np.zeros(1, np.int32)  # provisional code → id
        self._set_values([])

    def _set_values(self, values: list[Any]) -> None:
        self.values = pa.array(values, pa.int64() if self.integers else pa.string())

    @property
    def size(self) -> int:
        """Number of ids, the unknown one included."""
        return (self.hash_size or len(self.values)) + 1

    def codes_of(self, elements: pa.Array) -> np.ndarray:
        """(S,) int32 provisional codes of elements, which grow with every new value, or hashed ids."""
        if self.hash_size:
            return self._hashed_ids(elements)
        codes = self._codes
        return _map_distinct(elements, lambda value: codes.setdefault(value, len(codes)))

    def keys_of(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint64 keys of provisional codes, which depend on the values alone."""
        return codes.astype(np.uint64) if self.hash_size else self._hashes.of(codes)

    def fit(self, batches: Iterable[np.ndarray]) -> None:
        """Learn from batches of (S,) provisional codes."""
        if self.hash_size:
            return
        counts = np.zeros(len(self._codes), np.int64)
        for codes in batches:
            counts += np.bincount(codes, minlength=len(counts))
        # Rows of other splits have codes too, so a value may have a count of 0.
        min_count = max(1, self.min_count)
        frequent = [(value, int(counts[code])) for value, code in self._codes.items() if counts[code] >= min_count]
        # Ties are broken by value, null first, so that ids do not depend on the order of rows.
        frequent.sort(key=lambda entry: (-entry[1], entry[0] is not None, entry[0]))
        values = [value for value, _ in frequent[: self.max_size]]
        self._set_values(values)
        self._ids = np.zeros(len(self._codes), np.int32)  # values that are left out stay 0, unknown
        for id, value in enumerate(values, start=1):
            self._ids[self._codes[value]] = id

    def ids_of_codes(self, codes: np.ndarray) -> np.ndarray:
        """(S,) int32 ids of provisional codes."""
        return codes.astype(np.int32, copy=False) if self.hash_size else self._ids[codes]

    def ids_of(self, elements: pa.Array) -> np.ndarray:
        """(S,) int32 id of each element, 0 for unknown ones."""
        if self.hash_size:
            return self._hashed_ids(elements)
        encoded = elements.dictionary_encode()
        # One entry more than there are distinct values: that of null.
        values = pa.concat_arrays([encoded.dictionary.cast(self.values.type), pa.nulls(1, self.values.type)])
        ids = pc.fill_null(pc.index_in(values, value_set=self.values), -1).to_numpy(zero_copy_only=False) + 1
        indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(values) - 1).to_numpy(zero_copy_only=False)
        return ids[indices].astype(np.int32, copy=False)

    def _hashed_ids(self, elements: pa.Array) -> np.ndarray:
        size = self.hash_size or 1
        # crc32 is the same on every machine and in every process, unlike Python's hash.
        return _map_distinct(elements, lambda value: 1 + zlib.crc32(f"{value}".encode()) % size)

    def text_of(self, id: int) -> str:
        """Return a readable text of an id."""
        if self.hash_size:
            return f"#{id}"
        return "?" if id == 0 else str(self.values[id - 1])

    def state(self) -> dict[str, Any]:
        """Return everything learned."""
        return {"values": self.values.to_pylist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned. Raises InputError if no vocabulary can have that state."""
        require(state, {"values": list})
        try:
            self._set_values(state["values"])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise InputError("values", f"must be a list of {'integers' if self.integers else 'strings'}") from None


def _map_distinct(elements: pa.Array, number_of: Callable[[Any], int]) -> np.ndarray:
    """(S,) int32 number of each element. `number_of` is called once per distinct value, with None for null."""
    encoded = elements.dictionary_encode()
    numbers = np.fromiter(map(number_of, encoded.dictionary.to_pylist()), np.int32, len(encoded.dictionary))
    if not encoded.null_count:
        return numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers)).to_numpy(zero_copy_only=False)
    return np.append(numbers, np.int32(number_of(None)))[indices]
