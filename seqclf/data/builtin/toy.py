"""Generated toy task: token sequences of length 1 to 12 in five classes.

Tokens run from 1 to 10. Tokens 1 to 5 are signals, 6 to 10 are noise. The class is the *last* signal of the sequence,
so a model has to follow order and to remember: [2, 7, 4, 9, 6] is class 4.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIGNALS = 5
TOKENS = 10


def write(folder: Path, rows: dict[str, int], longest: int, seed: int) -> None:
    """Write `train.parquet`, `validation.parquet` and `test.parquet` with `rows[split]` sequences each.

    Lengths are uniform in [1, `longest`]. A sequence of noise only gets one signal at a random position.
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
