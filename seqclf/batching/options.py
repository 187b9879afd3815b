"""Validated options of the config group `batching`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from seqclf.config.options import Count, NonNegative, Options, Share, ZeroOrMore
from seqclf.errors import RefusedValueError


def require_tokens(value: Any) -> Any:
    """Reject any value except an integer of at least 1 or `auto`."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise RefusedValueError("must be at least 1, or auto")


TokensOption = Annotated[int | Literal["auto"], BeforeValidator(require_tokens)]


class BatchingOptions(Options):
    """Options of the config group `batching`. conf/batching/token_budget.yaml documents each key and its default."""

    max_tokens: TokensOption
    max_sequences: Count | None
    pool_batches: Count
    overhead: NonNegative | None
    balance: Share
    equal_row_weights: bool
    ranks: Count | None
    evaluation_factor: Count
    num_workers: ZeroOrMore
