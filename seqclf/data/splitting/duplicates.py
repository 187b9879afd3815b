"""Keys of rows that hold equal sequences, for finding duplicates.

Sequences are compared as the model gets them, but before anything is learned from them. Both are cut to
`data.max_length`. Texts are compared by the tokens of their tokenizer (so case and doubled spaces count only where they
change a token), trees by their nodes, times from the first kept token on, numbers by ten digits (see `Scaler.bits`). A
word that is too rare for the vocabulary still differs from another such word: the model reads both as unknown, but
nothing was copied.

Exception: with `tokenizer: bpe` and truncation, texts are compared by their first (or last) `max_length` words, while
the model gets as many subwords, which are known only after the splits are. Texts that differ only in the words after
those subwords are therefore not counted as duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.splitting.hashing import hash_rows


def sequence_keys(batch: pa.RecordBatch, encoders: Mapping[str, Encoder]) -> np.ndarray:
    """(N,) uint64 of staged rows: equal where all tokens are, else different but for chance (see `hashing`).

    A key depends on the content of its row alone, not on the rows before it.
    """
    columns = [batch.column(name) for name in encoders]
    token_keys = [encoder.token_keys(column) for encoder, column in zip(encoders.values(), columns, strict=True)]
    if not pa.types.is_list(columns[0].type):
        return token_keys[0]
    lengths = pc.list_value_length(columns[0]).to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = token_keys[0] if len(token_keys) == 1 else np.column_stack(token_keys)
    return hash_rows(tokens, np.concatenate([[0], np.cumsum(lengths)]))
