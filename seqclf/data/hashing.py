"""64-bit hashes (xxHash, XXH3) of sequences, texts and category values.

Among n different values two share a hash with probability n² / 2^65: 3e-8 for a million rows, 0.03 for a billion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest


def hash_rows(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(N,) uint64 hashes of rows of tokens.

    `tokens`: (S,) or (S, C), compared by their bytes. `offsets`: (N + 1,), row i is [offsets[i], offsets[i + 1]).
    """
    tokens = np.ascontiguousarray(tokens)
    if not tokens.nbytes:
        return np.full(len(offsets) - 1, xxh3_64_intdigest(b""), np.uint64)
    data = tokens.data.cast("B")  # slices of a memoryview copy nothing
    bounds = (offsets * (tokens.nbytes // len(tokens))).tolist()
    hashes = (xxh3_64_intdigest(data[start:stop]) for start, stop in itertools.pairwise(bounds))
    return np.fromiter(hashes, np.uint64, len(bounds) - 1)


def hash_bytes(texts: Iterable[bytes]) -> np.ndarray:
    """(N,) uint64 hashes of texts."""
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64)


class CodeHashes:
    """Hashes of the values behind provisional codes.

    Codes depend on the order in which values appear, hashes do not. Keys of rows, and a split by them, are therefore
    the same for every order of the rows. `codes`: value → code, a growing dict whose codes count from 0.
    """

    def __init__(self, codes: Mapping[Any, int]):
        self.codes = codes
        self.hashes = np.empty(0, np.uint64)  # by code

    def of(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint64 hashes of (S,) codes."""
        new_values = itertools.islice(self.codes, len(self.hashes), None)
        # A null must differ from every text, the empty one included.
        hashes = hash_bytes(b"\0null" if value is None else f"{value}".encode() for value in new_values)
        if len(hashes):
            self.hashes = np.concatenate([self.hashes, hashes])
        return self.hashes[codes]
