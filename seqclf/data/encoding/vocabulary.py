"""Category values → ids: a vocabulary fit on the training rows, or hashed into a fixed number of ids."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.fields import Field
from seqclf.data.splitting.hashing import CodeHashes
from seqclf.data.validation.row_checks import flatten
from seqclf.errors import InputError
from seqclf.system.stored_state import require

MISSING_CODE = 0


class Vocabulary:
    """Values → ids, the most frequent first; values seen fewer than `min_count` times are unknown, id 0.

    With `hash_size`, nothing is counted or stored: id is 1 + a hash of the value below that size, so values may share
    one. A missing value, where it is allowed, is a value like any other.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.hash_size: int | None = field.option("hash_size")
        self.codes: dict[Any, int] = {None: MISSING_CODE}
        self.hashes = CodeHashes(self.codes)
        self.ids = np.zeros(1, np.int32)
        self._hold([])

    def _hold(self, values: list[Any]) -> None:
        kind = pa.int64() if self.field.values == "integer" else pa.string()
        self.values = pa.array(values, kind)

    def stage(self, column: pa.Array) -> pa.Array:
        """Values → provisional codes, which grow with every value that is new; or the hashed ids."""
        elements = pc.list_flatten(column)
        staged = self._hashed(elements) if self.hash_size else self._coded(elements)
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), staged)

    def _coded(self, elements: pa.Array) -> np.ndarray:
        codes = self.codes
        return _by_distinct(elements, lambda value: codes.setdefault(value, len(codes)))

    def _hashed(self, elements: pa.Array) -> np.ndarray:
        size = self.hash_size or 1
        return _by_distinct(elements, lambda value: 1 + zlib.crc32(f"{value}".encode()) % size)

    def _known(self, elements: pa.Array) -> np.ndarray:
        encoded = elements.dictionary_encode()
        # One place more than there are values: that of null.
        values = pa.concat_arrays([encoded.dictionary.cast(self.values.type), pa.nulls(1, self.values.type)])
        table = pc.fill_null(pc.index_in(values, value_set=self.values), -1).to_numpy(zero_copy_only=False) + 1
        return table[pc.fill_null(encoded.indices.cast(pa.int64()), len(values) - 1).to_numpy(zero_copy_only=False)]

    def token_keys(self, column: pa.Array) -> np.ndarray:
        codes = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        return codes.astype(np.uint64) if self.hash_size else self.hashes.of(codes)

    def fit(self, batches: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        if self.hash_size:
            return
        counts = np.zeros(len(self.codes), np.int64)
        for batch in batches(self.field.name):
            codes = pc.list_flatten(batch.column(self.field.name)).to_numpy(zero_copy_only=False)
            counts += np.bincount(codes, minlength=len(counts))
        least, most = self.field.option("min_count"), self.field.option("max_size")
        seen = [(value, int(counts[code])) for value, code in self.codes.items() if counts[code] >= max(1, least)]
        kept = sorted(seen, key=lambda entry: (-entry[1], entry[0] is not None, entry[0]))[:most]
        self._hold([value for value, _ in kept])
        self.ids = np.zeros(len(self.codes), np.int32)
        for place, (value, _) in enumerate(kept, start=1):
            self.ids[self.codes[value]] = place

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        steps: Any
        lengths, steps = flatten(batch.column(self.field.name), self.field)
        if staged:
            codes = steps.to_numpy(zero_copy_only=False)
            ids = codes if self.hash_size else self.ids[codes]
        else:
            ids = self._hashed(steps) if self.hash_size else self._known(steps)
        return lengths, {self.field.name: ids.astype(np.int32, copy=False)}

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        ids = fields[self.field.name].tolist()
        if self.hash_size:
            return [f"#{place}" for place in ids]
        return ["?" if place == 0 else str(self.values[place - 1]) for place in ids]

    def spec(self) -> dict[str, Any]:
        size = self.hash_size or len(self.values)
        return {"name": self.field.name, "kind": "category", "size": size + 1}

    def state(self) -> dict[str, Any]:
        return {"values": self.values.to_pylist()}

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"values": list})
        try:
            self._hold(state["values"])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise InputError(f"values must be a list of {self.field.values}s") from None


def _by_distinct(elements: pa.Array, code: Callable[[Any], int]) -> np.ndarray:
    """(S,) int32: `code` of each element, asked once per distinct value; null is None."""
    encoded = elements.dictionary_encode()
    table = np.fromiter((code(value) for value in encoded.dictionary.to_pylist()), np.int32, len(encoded.dictionary))
    if not encoded.null_count:
        return table[encoded.indices.to_numpy(zero_copy_only=False)]
    places = pc.fill_null(encoded.indices.cast(pa.int64()), len(table)).to_numpy(zero_copy_only=False)
    return np.append(table, np.int32(code(None)))[places]
