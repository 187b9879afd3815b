"""Vocabularies that map values to ids, and the base class of field kinds with a vocabulary."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.field_encoder import EncoderState, ReadColumns
from seqclf.data.encoding.list_encoder import ListEncoder
from seqclf.data.ragged import CodeHashes, list_values
from seqclf.data.schema.casts import NO_INTEGER
from seqclf.data.schema.schema import Option, count_option
from seqclf.errors import InputError
from seqclf.system.state_validation import require

VOCABULARY_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {"min_count": count_option(1), "max_size": count_option(), "hash_size": count_option()}
)


class ProvisionalCodes(dict[Any, int]):
    """Dict value → provisional code until the vocabulary is fit. A lookup gives a new value the next one, from 0."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code


class Vocabulary:
    """Maps values to ids: 0 for all unknown values, 1 for the most frequent value. Null is a value like any other.

    A value is unknown if it occurs fewer than `min_count` times in training, or is not among the `max_size` most
    frequent. With `hash_size`, values are neither counted nor stored: an id is 1 plus a hash below `hash_size`, which
    values may share. `integers`: True if the values are integers, False for strings.

    >>> vocabulary = Vocabulary(integers=False)
    >>> vocabulary.fit([vocabulary.codes_of(pa.array(["fuel", "cafe", "cafe"]))])
    ['cafe', 'fuel']
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
        self.codes = ProvisionalCodes()
        self._hashes = CodeHashes(self.codes)
        self._ids = np.zeros(1, np.int32)  # id of each provisional code
        self._set_values([])

    def _set_values(self, values: list[Any]) -> None:
        self.values = pa.array(values, pa.int64() if self.integers else pa.string())
        self._plain: dict[Any, int] | None = None  # dict value → id, made at the first use

    @property
    def size(self) -> int:
        """Return the number of ids, including the id of unknown values."""
        return (self.hash_size or len(self.values)) + 1

    def codes_of(self, elements: pa.Array) -> np.ndarray:
        """Return the (S,) int32 provisional codes of elements, or their ids if the vocabulary is hashed."""
        if self.hash_size:
            return self._hashed_ids(elements)
        return _map_distinct(elements, self.codes.__getitem__)

    def keys_of(self, codes: np.ndarray) -> np.ndarray:
        """Return (S,) uint64 keys of the values that the provisional codes stand for."""
        return codes.astype(np.uint64) if self.hash_size else self._hashes.of(codes)

    def fit(self, batches: Iterable[np.ndarray]) -> list[Any]:
        """Fit on batches of (S,) provisional codes. Return all their values, also unknown ones, most frequent first."""
        if self.hash_size:
            return []
        counts = np.zeros(len(self.codes), np.int64)
        for codes in batches:
            counts += np.bincount(codes, minlength=len(counts))
        seen = [(-count, value) for value, count in zip(self.codes, counts.tolist(), strict=True) if count]
        # Equal counts are sorted by value, null first, so that ids do not depend on the order of the rows.
        seen.sort(key=lambda entry: (entry[0], entry[1] is not None, entry[1]))
        values = [value for count, value in seen if -count >= self.min_count][: self.max_size]
        self._set_values(values)
        self._ids = np.zeros(len(self.codes), np.int32)  # 0 is the id of unknown values
        self._ids[[self.codes[value] for value in values]] = np.arange(1, len(values) + 1)
        return [value for _, value in seen]

    def ids_of(self, elements: pa.Array) -> np.ndarray:
        """Return the (S,) int32 ids of values, or of the int32 numbers of `codes_of`; 0 for unknown values."""
        if elements.type == pa.int32():
            codes = elements.to_numpy(zero_copy_only=False)
            return codes if self.hash_size else self._ids[codes]
        if self.hash_size:
            return self._hashed_ids(elements)
        encoded = elements.dictionary_encode()
        # A null is added as the last value, so that null elements get an id too.
        values = pa.concat_arrays([encoded.dictionary.cast(self.values.type), pa.nulls(1, self.values.type)])
        ids = pc.fill_null(pc.index_in(values, value_set=self.values), -1).to_numpy(zero_copy_only=False) + 1
        indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(values) - 1).to_numpy(zero_copy_only=False)
        return ids[indices].astype(np.int32, copy=False)

    def plain_ids(self, elements: Sequence[int | str]) -> np.ndarray | None:
        """Return the (S,) int32 ids of Python values, None if a text is not valid Unicode or a number not an int64."""
        if self.integers and not all(NO_INTEGER < value < 2**63 for value in elements):  # type: ignore[operator]
            return None
        if not self.integers and not is_unicode(elements):  # type: ignore[arg-type]
            return None
        if self.hash_size:
            return np.array([self._hash(value) for value in elements], np.int32)
        if self._plain is None:
            self._plain = {value: id for id, value in enumerate(self.values.to_pylist(), start=1)}
        return np.array([self._plain.get(value, 0) for value in elements], np.int32)

    def _hash(self, value: Any) -> int:
        # crc32 gives the same hash on every machine and in every process, unlike Python's `hash`.
        return 1 + zlib.crc32(f"{value}".encode()) % (self.hash_size or 1)

    def _hashed_ids(self, elements: pa.Array) -> np.ndarray:
        return _map_distinct(elements, self._hash)

    def text_of(self, id: int) -> str:
        """Return the value of an id as text: `?` for the unknown value, and the number of a hashed id."""
        if self.hash_size:
            return f"#{id}"
        return "?" if id == 0 else str(self.values[id - 1])

    def state(self) -> dict[str, Any]:
        return {"values": self.values.to_pylist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Load a fitted state that `state` returned. Raises InputError if it is not valid."""
        require(state, {"values": list})
        try:
            self._set_values(state["values"])
            # Rows that were staged before have codes, as in a data set with encoders of another one.
            self._ids = self.ids_of(pa.array(list(self.codes), self.values.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise InputError("values", f"must be a list of {'integers' if self.integers else 'strings'}") from None


def is_unicode(texts: Iterable[str]) -> bool:
    """Return True if all texts can be encoded, which a text with half of a surrogate pair cannot."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def _map_distinct(elements: pa.Array, number_of: Callable[[Any], int]) -> np.ndarray:
    """Return the (S,) int32 results of `number_of`, which is slow and called once per distinct value, also for null."""
    encoded = elements.dictionary_encode()
    numbers = np.fromiter(map(number_of, encoded.dictionary.to_pylist()), np.int32, len(encoded.dictionary))
    if not encoded.null_count:
        return numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers)).to_numpy(zero_copy_only=False)
    return np.append(numbers, np.int32(number_of(None)))[indices]


class VocabularyEncoder(ListEncoder):
    """Base class of field kinds with a vocabulary. A token has one value or several values of the vocabulary."""

    encodes_token_by_token = True

    def set_up(self) -> None:
        self.integers = self.field.values == "integer"
        options = {name: self.option(name) for name in VOCABULARY_OPTIONS}
        self.vocabulary = Vocabulary(integers=self.integers, **options)

    @property
    def unknown_id(self) -> int | None:
        return None if self.vocabulary.hash_size else super().unknown_id

    @property
    def noun(self) -> str:
        """Return the word for the field's values in messages to users, such as `integers`."""
        return {"integer": "integers", "boolean": "booleans"}.get(self.field.values, "strings")

    def describe(self) -> str:
        return ", ".join(filter(None, [self.noun, super().describe()]))

    def codes(self, column: pa.Array) -> np.ndarray:
        """Return the provisional codes of all values in a staged column, as one array."""
        return list_values(column)

    def fit(self, read: ReadColumns) -> None:
        name = self.field.name
        self.vocabulary.fit(self.codes(record_batch.column(name)) for record_batch in read(name))

    def state(self) -> EncoderState:
        return self.vocabulary.state()

    def restore(self, state: EncoderState) -> None:
        self.vocabulary.restore(state)
