"""The command trains a model whose structure changes, resumes it, and exports the structure of the best epoch."""

import json

import pytest
import torch


@pytest.mark.slow
def test_a_schedule_is_trained_resumed_and_exported(shell, files):
    first = "{epoch: 2, layers: 2, freeze: embedding}"
    arguments = [*files, "model=lstm", "logger=none", "baseline=false", "hydra.run.dir=grown"]
    grown = shell("train", *arguments, "export=false", "trainer.max_epochs=2", f"structure=[{first}]")
    assert grown.exit_code == 0
    resumed = [*arguments, "trainer.max_epochs=3", "checkpoint=grown/checkpoints/last.ckpt"]
    refused = shell("train", *resumed, "structure=[{epoch: 3, layers: 2}]")
    assert refused.exit_code == 2
    assert "was trained with another model (model.layers=2 model.residual_layers=1)" in refused.stderr
    completed = shell("train", *resumed, f"structure=[{first}, {{epoch: 3, layers: 1}}]")
    assert completed.result["parity"] < 1e-5, completed.stderr
    assert "layers 1 → 2, embedding frozen" in grown.stderr and "the same function" in grown.stderr
    assert "layers 2 → 1" in completed.stderr and "another function" in completed.stderr
    best = torch.load(shell.folder / "grown" / "checkpoints" / "best.ckpt", weights_only=True)
    manifest = json.loads((shell.folder / "grown" / "bundle" / "manifest.json").read_text())
    assert manifest["model"]["pooling"] == best["hyper_parameters"]["model"]["pooling"]
    assert manifest["model"]["layers"] == best["hyper_parameters"]["model"]["layers"]
