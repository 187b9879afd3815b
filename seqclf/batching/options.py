"""Validated options of the config group `batching`."""

from __future__ import annotations

from seqclf.config.options import Count, NonNegative, Options, Share, ZeroOrMore


class BatchingOptions(Options):
    """Options of the config group `batching`. conf/batching/token_budget.yaml documents each key and its default."""

    max_tokens: Count
    max_sequences: Count | None
    pool_batches: Count
    overhead: NonNegative | None
    balance: Share
    equal_row_weights: bool
    ranks: Count | None
    evaluation_factor: Count
    num_workers: ZeroOrMore
