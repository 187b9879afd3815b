"""Rows of two classes that tokens decide, with some noise."""

import numpy as np
import pyarrow as pa


def noisy_rows(count: int, seed: int) -> pa.Table:
    """Rows with the columns `id`, `code` and `label`. The label follows from the number of a's, with some noise."""
    generator = np.random.default_rng(seed)
    tokens = [generator.choice(list("aabc"), generator.integers(4, 12)).tolist() for _ in range(count)]
    counts = [2 * row.count("a") - len(row) + generator.normal() for row in tokens]
    ids = [f"{seed}-{number}" for number in range(count)]
    return pa.table({"id": ids, "code": tokens, "label": np.where(np.array(counts) > 0, "yes", "no")})
