"""Purchases of cards to train on, and the settings of a training that is small and quick."""

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
    """Purchases of one card each; those of a stolen one are often of fuel, then jewels."""
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
