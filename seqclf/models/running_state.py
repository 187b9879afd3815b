"""States that a streaming model passes from one chunk of a sequence to the next chunk."""

from __future__ import annotations

from typing import NamedTuple

LOWEST = -3.4028234663852886e38  # lowest finite float32; JSON cannot store -inf, and -inf - -inf is NaN


class State(NamedTuple):
    """Description of a state, a float32 tensor (B, *`shape`) for B sequences, `initial` before the first token.

    `initial` must be a finite number: write -1e30 or `LOWEST` for the -inf of a running maximum.
    """

    name: str
    shape: tuple[int, ...]
    initial: float = 0.0
