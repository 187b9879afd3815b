"""64-bit hashes (xxHash, XXH3) of sequences and texts.

Two different values among n share a hash with probability n² / 2^65: 3e-8 for a million rows, 0.03 for a billion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

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


def hash_bytes(texts: Iterable[bytes]) -> np.ndarray:
    """(N,) uint64 of texts."""
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64)
