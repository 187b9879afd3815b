"""Encoder of category fields: values → ids, by a vocabulary or by hashing.

Texts and trees fit vocabularies of words, in `tokenizer` and `tree_tokenizer`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import NO_ENCODERS, EncodedField, Encoder, EncoderState, ReadColumns
from seqclf.data.encoding.field_spec import CategorySpec
from seqclf.data.encoding.list_columns import list_lengths, list_offsets, list_values
from seqclf.data.encoding.truncation import NO_TRUNCATION, Truncation
from seqclf.data.schema.fields import Field
from seqclf.data.splitting.hashing import CodeHashes
from seqclf.errors import InputError
from seqclf.system.stored_state import require

MISSING_CODE = 0


class Vocabulary(Encoder):
    """Values → ids. Id 1 is the most frequent value, id 0 stands for unknown ones.

    Values seen fewer than `min_count` times in training are unknown too, as are those beyond the `max_size` most
    frequent. A missing value, where the field allows it, is a value like any other.

    With `hash_size` nothing is counted or stored: the id is 1 + a hash of the value below that size. Different values
    may then share an id.

    >>> vocabulary = Vocabulary(Field("shop", "category", ("shop",)))
    >>> train = pa.record_batch({"shop": vocabulary.stage(pa.array([["fuel", "cafe"], ["cafe"]]))})
    >>> vocabulary.fit(lambda *names: iter([train]))
    >>> vocabulary.encode(pa.record_batch({"shop": [["cafe", "hotel", "fuel"]]})).arrays["shop"].tolist()
    [1, 0, 2]
    """

    def __init__(
        self,
        field: Field,
        others: Mapping[str, Encoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.hash_size: int | None = field.option("hash_size")
        # Value → provisional code. Codes count from 0 and are never reused, as staged files hold them.
        self.codes: dict[Any, int] = {None: MISSING_CODE}
        self.hashes = CodeHashes(self.codes)
        self.ids = np.zeros(1, np.int32)  # provisional code → id
        self._set_values([])

    def _set_values(self, values: list[Any]) -> None:
        kind = pa.int64() if self.field.values == "integer" else pa.string()
        self.values = pa.array(values, kind)

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of provisional codes, which grow with every new value, or of hashed ids."""
        elements = pc.list_flatten(column)
        staged = self._hashed_ids(elements) if self.hash_size else self._codes_of(elements)
        return pa.ListArray.from_arrays(list_offsets(list_lengths(column)).astype(np.int32), staged)

    def token_keys(self, column: pa.Array) -> np.ndarray:
        codes = list_values(column)
        return codes.astype(np.uint64) if self.hash_size else self.hashes.of(codes)

    def fit(self, read: ReadColumns) -> None:
        if self.hash_size:
            return
        counts = np.zeros(len(self.codes), np.int64)
        for record_batch in read(self.field.name):
            counts += np.bincount(list_values(record_batch.column(self.field.name)), minlength=len(counts))
        # Rows of other splits have codes too, so a value may have a count of 0.
        min_count = max(1, self.field.option("min_count"))
        frequent = [(value, int(counts[code])) for value, code in self.codes.items() if counts[code] >= min_count]
        # Ties are broken by value, null first, so that ids do not depend on the order of rows.
        frequent.sort(key=lambda entry: (-entry[1], entry[0] is not None, entry[0]))
        values = [value for value, _ in frequent[: self.field.option("max_size")]]
        self._set_values(values)
        self.ids = np.zeros(len(self.codes), np.int32)  # values that are left out stay 0, unknown
        for id, value in enumerate(values, start=1):
            self.ids[self.codes[value]] = id

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        elements = pc.list_flatten(column)
        return self._encoded(column, self._hashed_ids(elements) if self.hash_size else self._vocabulary_ids(elements))

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        codes = list_values(column)
        return self._encoded(column, codes if self.hash_size else self.ids[codes])

    def _encoded(self, column: pa.Array, ids: np.ndarray) -> EncodedField:
        return EncodedField(list_lengths(column), {self.field.name: ids.astype(np.int32, copy=False)})

    def _codes_of(self, elements: pa.Array) -> np.ndarray:
        codes = self.codes
        return _map_distinct(elements, lambda value: codes.setdefault(value, len(codes)))

    def _hashed_ids(self, elements: pa.Array) -> np.ndarray:
        size = self.hash_size or 1
        # crc32 is the same on every machine and in every process, unlike Python's hash.
        return _map_distinct(elements, lambda value: 1 + zlib.crc32(f"{value}".encode()) % size)

    def _vocabulary_ids(self, elements: pa.Array) -> np.ndarray:
        """(S,) id of each element, 0 for unknown ones."""
        encoded = elements.dictionary_encode()
        # One entry more than there are distinct values: that of null.
        values = pa.concat_arrays([encoded.dictionary.cast(self.values.type), pa.nulls(1, self.values.type)])
        ids = pc.fill_null(pc.index_in(values, value_set=self.values), -1).to_numpy(zero_copy_only=False) + 1
        return ids[pc.fill_null(encoded.indices.cast(pa.int64()), len(values) - 1).to_numpy(zero_copy_only=False)]

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        ids = fields[self.field.name].tolist()
        if self.hash_size:
            return [f"#{id}" for id in ids]
        return ["?" if id == 0 else str(self.values[id - 1]) for id in ids]

    def spec(self) -> CategorySpec:
        size = self.hash_size or len(self.values)
        return {"name": self.field.name, "kind": "category", "size": size + 1}

    def state(self) -> EncoderState:
        return {"values": self.values.to_pylist()}

    def restore(self, state: EncoderState) -> None:
        require(state, {"values": list})
        try:
            self._set_values(state["values"])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise InputError(f"values must be a list of {self.field.values}s") from None


def _map_distinct(elements: pa.Array, number_of: Callable[[Any], int]) -> np.ndarray:
    """(S,) int32 number of each element. `number_of` is called once per distinct value, with None for null."""
    encoded = elements.dictionary_encode()
    numbers = np.fromiter(map(number_of, encoded.dictionary.to_pylist()), np.int32, len(encoded.dictionary))
    if not encoded.null_count:
        return numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers)).to_numpy(zero_copy_only=False)
    return np.append(numbers, np.int32(number_of(None)))[indices]
