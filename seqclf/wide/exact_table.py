"""Exact look-up of pairs of integers in ONNX: a cuckoo hash table that stores the pairs themselves."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

PRIME = 2**31 - 1

ROOM = 1.3  # slots of each of the two tables for each pair; two tables of a load below one half fill without a cycle
MAX_ROUNDS = 200  # rounds of evictions before other factors are drawn
MAX_TOKEN = 2**31  # exclusive; a pair is stored as prefix * MAX_TOKEN + token


class ExactTable(nn.Module):
    """Look-up of pairs (prefix, token), each below 2**31, in a fixed set of numbered pairs.

    `forward` returns the number of each pair, from 1, and 0 for a pair that is not in the set. A pair is compared as a
    whole, so no other pair is ever taken for it. The table has two slots for each pair, and `slots` slots in each of
    its two halves.

    >>> table = ExactTable.of_pairs(np.array([4, 4, 7]), np.array([1, 2, 1]))
    >>> table(torch.tensor([4, 7, 7]), torch.tensor([2, 1, 2])).tolist()
    [2, 3, 0]
    """

    factors: Tensor
    pairs: Tensor
    numbers: Tensor

    def __init__(self, slots: int):
        super().__init__()
        self.slots = slots
        self.register_buffer("factors", torch.zeros(2, 2, dtype=torch.int64))
        self.register_buffer("pairs", torch.full((2 * slots,), -1, dtype=torch.int64))
        self.register_buffer("numbers", torch.zeros(2 * slots, dtype=torch.int32))

    @classmethod
    def of_pairs(cls, prefixes: np.ndarray, tokens: np.ndarray, seed: int = 0) -> ExactTable:
        """Return the table of the distinct pairs (prefixes[i], tokens[i]), which get the numbers i + 1."""
        table = cls(slots_for(len(prefixes)))
        generator = np.random.default_rng(seed)
        pairs = prefixes.astype(np.int64) * MAX_TOKEN + tokens
        while True:
            factors = generator.integers(PRIME // 2, PRIME, (2, 2))
            slots = np.stack(
                [half * table.slots + _hash(prefixes, tokens, factors[half], table.slots) for half in (0, 1)]
            )
            owner = _place(slots, 2 * table.slots)
            if owner is not None:
                break
        used = np.flatnonzero(owner >= 0)
        table.factors.copy_(torch.from_numpy(factors))
        table.pairs[used] = torch.from_numpy(pairs[owner[used]])
        table.numbers[used] = torch.from_numpy((owner[used] + 1).astype(np.int32))
        return table

    def forward(self, prefixes: Tensor, tokens: Tensor) -> Tensor:
        """Return the numbers of the pairs, int64 of the shape of `prefixes` and `tokens`."""
        pairs = prefixes * MAX_TOKEN + tokens
        found = torch.zeros_like(pairs)
        for half in (0, 1):
            hashed = (prefixes * self.factors[half, 0]) % PRIME + (tokens * self.factors[half, 1]) % PRIME
            slot = hashed % self.slots + half * self.slots
            found = torch.where(self.pairs[slot] == pairs, self.numbers[slot].to(torch.int64), found)
        return found

    def pair(self, number: int) -> tuple[int, int]:
        """Return the pair with a number.

        >>> ExactTable.of_pairs(np.array([4, 4, 7]), np.array([1, 2, 1])).pair(3)
        (7, 1)
        """
        slot = int((self.numbers == number).nonzero()[0])
        prefix, token = divmod(int(self.pairs[slot]), MAX_TOKEN)
        return prefix, token


def slots_for(pairs: int) -> int:
    """Return the slots of each half of a table of so many pairs."""
    return int(ROOM * pairs) + 8


def _hash(prefixes: np.ndarray, tokens: np.ndarray, factors: np.ndarray, slots: int) -> np.ndarray:
    first, second = (int(factor) for factor in factors)
    return ((prefixes.astype(np.int64) * first) % PRIME + (tokens.astype(np.int64) * second) % PRIME) % slots


def _place(slots: np.ndarray, size: int) -> np.ndarray | None:
    """Return the item in each slot (size,), -1 for none, or None where some item found no place.

    `slots`: (2, N) the slot of each item in either half. All items that are without a slot move in at once. Those they
    evict move to the other half in the next round.
    """
    owner = np.full(size, -1)
    homeless, half = np.arange(slots.shape[1]), np.zeros(slots.shape[1], np.int64)
    for _ in range(MAX_ROUNDS):
        if not len(homeless):
            return owner
        wanted = slots[half[homeless], homeless]
        evicted = owner[wanted]
        owner[wanted] = homeless  # of several, the last one stays
        lost = homeless[owner[wanted] != homeless]
        evicted = np.unique(evicted[evicted >= 0])
        homeless = np.unique(np.concatenate([lost, evicted]))
        half[homeless] = 1 - half[homeless]
    return None
