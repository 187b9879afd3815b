"""64-bit hashes (xxHash, XXH3) of sequences, texts and category values.

Two of n different values share a hash with probability n² / 2^65: 3e-8 for a million rows, 0.03 for a billion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

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
