"""Advice before the training, from the lengths of the training sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.models.recurrent import Recurrent

LONG_SIGNAL = 100  # tokens; from this median length on, strided convolutions save most of the time of training
BATCH_TOKENS = 1024  # tokens of a batch up to which more rows cost little time
MANY_ROWS = 3_000  # fewer rows make few batches, so that larger ones would cost steps that the network needs


def length_advice(model: Mapping[str, Any], rows: int | None, dataset: Dataset) -> Iterator[str]:
    """Yield lines about settings that train faster on sequences of these lengths.

    `model`: block of the config. `rows`: largest number of rows of a batch, None for any. A recurrent network that
    reads every token of long signals gets advice, but no unidirectional one: it may be meant for growing sequences,
    which convolutions with strides do not read token by token. So do batches that hold few tokens, as a step on a CPU
    takes about as long with more.
    """
    lengths = dataset.splits["train"].sequences.lengths
    kinds = {field["kind"] for field in dataset.description()["fields"]}
    is_recurrent = model.get("encoder", {}).get("_target_") == f"{Recurrent.__module__}.{Recurrent.__qualname__}"
    median = float(np.median(lengths))
    if kinds == {"number"} and median >= LONG_SIGNAL and is_recurrent and model.get("bidirectional"):
        yield (
            f"signals of {median:,.0f} tokens (median): model=conv_lstm shortens them by convolutions, and takes a "
            "half of the time or less"
        )
    tokens = rows * lengths.mean() if rows else BATCH_TOKENS
    if rows and 2 * tokens <= BATCH_TOKENS and len(lengths) >= MANY_ROWS:
        larger = rows * 2 ** int(np.log2(BATCH_TOKENS / tokens))
        yield (
            f"batches of {rows} rows hold {tokens:,.0f} tokens (mean): batching.max_sequences={larger} trains up to "
            "twice as fast on a CPU"
        )
