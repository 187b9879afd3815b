"""The command trains a model whose structure changes, resumes it, and exports the structure of the best epoch."""

import csv
import json

import pytest
import torch


@pytest.mark.slow
def test_a_schedule_is_trained_resumed_and_exported(shell, files):
    first = "{epoch: 2, layers: 2, freeze: embedding}"
    arguments = [*files, "model=lstm", "logger=none", "baseline=false", "hydra.run.dir=grown"]
    assert shell("train", *arguments, "export=false", "trainer.max_epochs=2", f"structure=[{first}]").exit_code == 0
    resumed = [*arguments, "trainer.max_epochs=3", "checkpoint=grown/checkpoints/last.ckpt"]
    refused = shell("train", *resumed, "structure=[{epoch: 3, layers: 2}]")
    assert refused.exit_code == 2
    assert "was trained with another model (model.layers=2 model.residual_layers=1)" in refused.stderr
    assert "was trained with another model" in (without := shell("train", *resumed)).stderr
    assert "and the same structure up to the epoch of the checkpoint" in without.stderr
    completed = shell("train", *resumed, f"structure=[{first}, {{epoch: 3, pooling: mean+max}}]")
    assert completed.result["parity"] < 1e-5, completed.stderr
    with (shell.folder / "grown" / "metrics.csv").open(newline="") as file:
        notes = [row["observation"] for row in csv.DictReader(file)]
    assert "layers 1 → 2, embedding frozen" in notes[1] and "same function: logits unchanged" in notes[1]
    assert "pooling max → mean+max" in notes[2] and "another function" in notes[2]
    best = torch.load(shell.folder / "grown" / "checkpoints" / "best.ckpt", weights_only=True)
    manifest = json.loads((shell.folder / "grown" / "bundle" / "manifest.json").read_text())
    assert manifest["model"]["pooling"] == best["hyper_parameters"]["model"]["pooling"]
    assert manifest["model"]["layers"] == best["hyper_parameters"]["model"]["layers"]
