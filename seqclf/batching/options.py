"""The keys of batching.*, checked."""

from __future__ import annotations

from typing import Literal

from seqclf.config.options import Count, NonNegative, Options, Share, ZeroOrMore


class BatchingOptions(Options):
    """conf/batching/token_budget.yaml, which explains each key and holds its default."""

    max_tokens: Count | Literal["auto"]
    max_sequences: Count | None
    pool_batches: Count
    overhead: NonNegative | None
    multiple_of: Count
    edges: Count | None
    balance: Share
    equal_row_weights: bool
    largest_first: bool
    ranks: Count | None
    evaluation_factor: Count
    num_workers: ZeroOrMore
