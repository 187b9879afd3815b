"""State of a sequence that is read chunk by chunk."""

from __future__ import annotations

from typing import NamedTuple

LOWEST = -3.4028234663852886e38  # float32; in the place of -inf, which JSON lacks and whose differences are NaN


class State(NamedTuple):
    """A state (B, *`shape`) float32 of B sequences, which is `initial` everywhere before the first token."""

    name: str
    shape: tuple[int, ...]
    initial: float
