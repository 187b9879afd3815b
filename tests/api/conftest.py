"""A data frame of sequences, and one run that is trained on it per session."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support.torchlib_registry import share_registry

import seqclf

FAST = (
    "model=lstm",
    "model.hidden_size=8",
    "model.embedding_size=8",
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "logger=none",
    "baseline=false",
)

share_registry()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_frame(rows: int, seed: int = 0) -> pd.DataFrame:
    """Sequences of shops and amounts. Those labelled `fraud` end in a shop that the others never visit."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(["fraud", "fair"], rows)
    shops = [
        [*generator.choice(["food", "fuel"], generator.integers(1, 6)), "bets" if label == "fraud" else "food"]
        for label in labels
    ]
    return pd.DataFrame(
        {
            "card": [f"c{row}" for row in range(rows)],
            "shops": shops,
            "amounts": [generator.lognormal(size=len(entry)) for entry in shops],
            "label": labels,
        },
        index=pd.Index(range(100, 100 + rows), name="number"),
    )


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    return make_frame(60)


@pytest.fixture(scope="session")
def run(frame: pd.DataFrame, cache: Any, tmp_path_factory: pytest.TempPathFactory) -> "seqclf.Run":
    """Run on `frame`, whose bundle knows the column `card` as the id."""
    folder = tmp_path_factory.mktemp("api") / "run"
    return seqclf.fit(
        frame,
        label="label",
        test=make_frame(20, seed=1),
        overrides=[*FAST, "data.id=card", "data.positive=fraud"],
        folder=folder,
    )
