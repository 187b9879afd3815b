"""Keys of rows that hold equal sequences, to detect duplicates.

`split_leakage.find_leaks` compares and counts them, and `SplitPolicy` drops rows or refuses them (`data.on_leak`).

Sequences are compared as the model gets them, but before anything is learned from them:

- Both are truncated to `data.max_length`.
- Texts are compared by the tokens of their tokenizer, so case and repeated spaces count only where they change a token.
- Trees are compared by their nodes, times relative to the first kept token, numbers by ten digits (see
  `NumberEncoder.token_keys`).
- A word that is too rare for the vocabulary differs from another such word. The model reads both as unknown, but
  nothing was copied.

Exception: with `tokenizer: bpe` and truncation, texts are compared by their first (or last) `max_length` words. The
model gets as many subwords, which are known only after the splits are. Texts that differ only in the words after those
subwords are therefore not counted as duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.list_columns import list_lengths, list_offsets
from seqclf.data.splitting.hashing import hash_rows


def sequence_keys(staged: pa.RecordBatch, encoders: Mapping[str, Encoder]) -> np.ndarray:
    """(N,) uint64 keys of staged rows, equal if all tokens are equal. For collisions see `hashing`.

    A key depends on the content of its row alone, not on the rows before it.
    """
    columns = [staged.column(name) for name in encoders]
    token_keys = [encoder.token_keys(column) for encoder, column in zip(encoders.values(), columns, strict=True)]
    if not pa.types.is_list(columns[0].type):
        return token_keys[0]  # a text or tree stands alone, and its key is that of the row
    tokens = token_keys[0] if len(token_keys) == 1 else np.column_stack(token_keys)
    return hash_rows(tokens, list_offsets(list_lengths(columns[0])))
