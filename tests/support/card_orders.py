"""Simulated card holders whose label depends on the order of their events alone, with some wrong labels."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KINDS = ["food", "fuel", "fun", "travel", "rent"]  # of ordinary events
# Settings of a short training that ranks such rows well.
QUICK = ["trainer.max_epochs=8", "model.hidden_size=24", "model.embedding_size=12", "optimizer.lr=0.02"]
QUICK += ["batching.max_sequences=32", "runtime.threads=1", "logger=none", "trainer.accelerator=cpu"]


def card_orders(rows: int, seed: int, positives: float = 0.04, wrong: float = 0.05) -> pa.Table:
    """Return `rows` card holders with 8 to 40 events: id, kinds, amounts and the label `fraud` ("yes" or "no").

    Each holder has a cheap probe and an expensive purchase, side by side among ordinary events. In a fraud the probe
    comes first, else the purchase, so that counts of events say nothing. `positives`: fraction of the rows labelled
    "yes". `wrong`: fraction of these labels that belong to the events of an honest holder.
    """
    generator = np.random.default_rng([seed, rows])
    labelled = generator.permutation(rows) < round(positives * rows)
    fraud = labelled & (generator.random(rows) >= wrong)
    kinds, amounts = [], []
    for is_fraud in fraud:
        length = int(generator.integers(8, 41))
        kind, amount = generator.choice(KINDS, length).tolist(), generator.lognormal(3, 1, length)
        first = int(generator.integers(length - 1))
        probe, purchase = (first, first + 1) if is_fraud else (first + 1, first)
        kind[probe], amount[probe] = "probe", generator.uniform(0.5, 2)
        kind[purchase], amount[purchase] = "purchase", generator.uniform(300, 900)
        kinds.append(kind)
        amounts.append(amount.round(2).tolist())
    ids, labels = [f"holder-{seed}-{row}" for row in range(rows)], np.where(labelled, "yes", "no").tolist()
    return pa.table({"holder": ids, "kind": kinds, "amount": amounts, "fraud": labels})


def write_card_orders(path: Path, rows: int, seed: int, positives: float = 0.04) -> Path:
    """Write such holders to a Parquet file and return its path."""
    pq.write_table(card_orders(rows, seed, positives), path)
    return path
