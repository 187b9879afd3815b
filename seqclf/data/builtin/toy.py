"""Generated toy task: sequences of 1 to 12 tokens in five classes.

Tokens are integers from 1 to 10. Tokens 1 to 5 are signals, and tokens 6 to 10 are noise. The class of a sequence is
its *last* signal: the class of [2, 7, 4, 9, 6] is 4. A model therefore has to learn the order of the tokens and to
remember signals.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIGNALS = 5
TOKENS = 10


def write(folder: Path, rows: dict[str, int], longest: int, seed: int) -> None:
    """Write the files `train.parquet`, `validation.parquet` and `test.parquet`.

    The length of each sequence is drawn uniformly from 1 to `longest`. If no token of a drawn sequence is a signal, one
    random token is replaced by a random signal. `rows`: dict split → number of sequences in the file of the split.
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
