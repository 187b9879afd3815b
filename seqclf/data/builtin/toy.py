"""Generated toy task: sequences of 1 to 12 tokens in five classes.

Tokens 1 to 5 are signals, and tokens 6 to 10 are noise. The class of a sequence is its *last* signal: 4 for [2, 7, 4,
9, 6].
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIGNALS = 5
TOKENS = 10


def write(folder: Path, rows: dict[str, int], longest: int, seed: int) -> None:
    """Write `train.parquet`, `validation.parquet` and `test.parquet`. `rows`: dict split → number of sequences.

    Lengths are uniform from 1 to `longest`. A sequence without a signal gets one at a random position.
    """
    generator = np.random.default_rng(seed)
    for split, count in rows.items():
        tokens, labels = [], []
        for length in generator.integers(1, longest + 1, count):
            sequence = generator.integers(1, TOKENS + 1, length)
            if sequence.min() > SIGNALS:
                sequence[generator.integers(length)] = generator.integers(1, SIGNALS + 1)
            tokens.append(sequence)
            labels.append(int(sequence[sequence <= SIGNALS][-1]))
        table = pa.table({"id": np.arange(1, count + 1), "tokens": tokens, "label": labels})
        pq.write_table(table, folder / f"{split}.parquet")
