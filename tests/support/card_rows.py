"""Simulated card purchases, and settings of a small and quick training run."""

from collections.abc import Iterator
from typing import Any

import numpy as np

EPOCHS = 4
SMALL = [
    f"trainer.max_epochs={EPOCHS}",
    "model.hidden_size=8",
    "model.embedding_size=8",
    "optimizer.lr=0.02",
    "runtime.threads=1",
]


def cards(rows: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows with the purchases of one card. Those of stolen cards mostly end with fuel, then jewels."""
    generator = np.random.default_rng(seed)
    for row in range(rows):
        stolen = bool(generator.random() < 0.3)
        shops = generator.choice(["food", "fuel", "fun", "jewels"], generator.integers(1, 14)).tolist()
        if stolen and generator.random() < 0.9:
            shops[-2:] = ["fuel", "jewels"]
        amounts = generator.lognormal(1.0 + 0.3 * stolen, 0.5, len(shops)).round(2).tolist()
        yield {
            "card": f"card-{seed}-{row}",
            "shop": shops,
            "amount": amounts,
            "fraud": "yes" if stolen else "no",
        }
