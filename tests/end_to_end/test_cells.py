"""The cells that ship, by commands: trained, exported and predicted alike, from fields with gaps and missing values."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf import Classifier

COMMON = ["model.hidden_size=12", "model.embedding_size=8", "logger=none", "baseline=false"]
CELLS = {
    "t_lstm": [
        "data.fields={shop: category, time: time}",
        *("model=t_lstm", "model.encoder.cell.gap=time", "model.bidirectional=true"),
    ],
    "gru_d": [
        "data.fields={time: time, level: {kind: number, missing: last, since: time}}",
        *("model=gru_d", "model.encoder.cell.field=level"),
    ],
}


@pytest.fixture(scope="module")
def visits(shell):
    """Visits of 200 sequences. In one class they follow each other fast, and its levels are high and rarely missing."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(200):
        is_fast, length = index % 2, rng.integers(3, 10)
        levels = rng.normal(2 * is_fast, 1, length)
        known = rng.random(length) < (0.8 if is_fast else 0.4)
        rows.append(
            {
                "shop": rng.choice(["food", "fuel", "fun"], length).tolist(),
                "time": np.cumsum(rng.exponential(1 if is_fast else 60, length)).tolist(),
                "level": [float(level) if there else None for level, there in zip(levels, known, strict=True)],
                "label": ["slow", "fast"][is_fast],
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), shell.folder / "visits.parquet")
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_ships_is_trained_exported_and_predicted(shell, visits, cell):
    data = ["data=files", "data.train=visits.parquet", "data.label=label", "data.infer=false", *CELLS[cell]]
    run = shell("train", *data, *COMMON, "trainer.max_epochs=12", f"hydra.run.dir={cell}").result
    assert run["parity"] < 1e-5 and run["accuracy"] > 0.8
    classifier = Classifier(shell.folder / run["bundle"])
    inputs = [{name: row[name] for name in ("shop", "time", "level") if name in CELLS[cell][0]} for row in visits[:20]]
    together = classifier.predict_proba(inputs)
    alone = np.concatenate([classifier.predict_proba([row]) for row in inputs])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)
    assert np.isfinite(together).all()
