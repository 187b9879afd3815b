"""64-bit hashes (xxHash, XXH3) of sequences and texts.

Two different values among n share a hash with probability n² / 2^65: 3e-8 for a million rows, 0.03 for a billion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest


def hash_rows(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(N,) uint64 of the bytes of rows of tokens. `tokens`: (S, C); row i in [offsets[i], offsets[i + 1])."""
    tokens = np.ascontiguousarray(tokens)
    if not tokens.nbytes:
        return np.full(len(offsets) - 1, xxh3_64_intdigest(b""), np.uint64)
    data = tokens.data.cast("B")
    bounds = (offsets * (tokens.nbytes // len(tokens))).tolist()
    hashes = (xxh3_64_intdigest(data[start:stop]) for start, stop in itertools.pairwise(bounds))
    return np.fromiter(hashes, np.uint64, len(bounds) - 1)


class ValueHashes:
    """Hashes of the values that have provisional codes.

    Codes depend on the order in which values are met. Keys made of them would change with the order of the rows, and
    with the tokens that truncation cuts away.
    """

    def __init__(self) -> None:
        self.hashes = np.empty(0, np.uint64)

    def of_codes(self, codes: Mapping[Any, int]) -> np.ndarray:
        """(len(codes),) uint64 by code. `codes`: value → code, in the order of the codes, as far as they are known."""
        new = itertools.islice(codes, len(self.hashes), None)
        hashes = np.fromiter((xxh3_64_intdigest(repr(value).encode()) for value in new), np.uint64)
        self.hashes = np.concatenate([self.hashes, hashes])
        return self.hashes


def hash_bytes(texts: Iterable[bytes]) -> np.ndarray:
    """(N,) uint64 of texts."""
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64)


class CodeHashes:
    """Hashes of the values behind provisional codes.

    Codes depend on the order in which values appear; hashes do not, so that the keys of rows, and a split by them, are
    the same whatever the order of the rows. `codes`: value → code, growing from 0.
    """

    def __init__(self, codes: Mapping[Any, int]):
        self.codes = codes
        self.hashes = np.empty(0, np.uint64)

    def of(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint64 of (S,) codes."""
        new = itertools.islice(self.codes, len(self.hashes), None)
        # A null must differ from every text, the empty one included.
        hashed = hash_bytes(b"\0null" if value is None else f"{value}".encode() for value in new)
        if len(hashed):
            self.hashes = np.concatenate([self.hashes, hashed])
        return self.hashes[codes]
