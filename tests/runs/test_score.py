"""The scores of a run are those of the weights that it exports."""

import csv

import numpy as np
import pyarrow as pa
import pytest
import torch

import seqclf

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=16", "model.embedding_size=8", "export=false"]
SETTINGS += ["model=lstm", "optimizer.lr=1e-2", "baseline=false", "trainer.max_epochs=3"]


def test_the_metrics_of_validation_are_those_of_the_checkpoint(tmp_path):
    generator = np.random.default_rng(0)
    tokens = generator.choice(list("abcdef"), (200, 8))
    table = pa.table({"code": tokens.tolist(), "label": np.where(tokens[:, 0] < "d", "yes", "no")})
    settings = [*SETTINGS, f"data.cache_dir={tmp_path / 'cache'}"]
    run = seqclf.fit(table, label="label", overrides=settings, folder=tmp_path / "run")
    with (run.folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    epoch = torch.load(run.folder / "checkpoints/best.ckpt", weights_only=True)["epoch"]
    assert run.metrics["validation"]["recall"] == pytest.approx(float(rows[epoch]["validation/recall"]), rel=1e-6)
