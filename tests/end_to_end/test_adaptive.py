"""model=adaptive through the commands: train, resume, export, predict, evaluate, with the same figures in each."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

from seqclf.data.builtin.toy import write


@pytest.mark.slow
def test_an_adaptive_model_goes_through_all_commands(shell):
    options = ["data=toy", "model=adaptive", "model.hidden_size=16", "logger=none", "baseline=false"]
    trained = shell("train", *options, "trainer.max_epochs=2", "hydra.run.dir=adaptive").result
    metrics = json.loads((shell.folder / "adaptive/metrics.json").read_text())
    assert "tokens_read: " in (shell.folder / "adaptive/report.html").read_text(encoding="utf-8")
    predicted = pq.read_table(shell.folder / "adaptive/predictions.parquet")
    assert 0 < sum(predicted["tokens_read"].to_pylist()) <= sum(predicted["length"].to_pylist())

    checkpoint = "checkpoint=adaptive/checkpoints/last.ckpt"
    shell("train", *options, "trainer.max_epochs=2", "export=false", checkpoint, "hydra.run.dir=adaptive_resumed")
    resumed = pq.read_table(shell.folder / "adaptive_resumed/predictions.parquet")
    assert resumed["tokens_read"] == predicted["tokens_read"]
    (shell.folder / "adaptive_moved").mkdir()
    shutil.copy(shell.folder / "adaptive/model.ckpt", shell.folder / "adaptive_moved")
    exported = shell("export", "checkpoint=adaptive_moved/model.ckpt", "bundle=adaptive_copy").result
    assert exported["parity"] == trained["parity"] < 1e-5
    (shell.folder / "toy").mkdir()
    write(shell.folder / "toy", rows={"train": 4000, "validation": 1000, "test": 1000}, longest=12, seed=0)
    source = ["data.test=toy/test.parquet", "output=adaptive_evaluation"]
    evaluated = shell("evaluate", "bundle=adaptive_copy", *source).result
    assert evaluated["recall"] == pytest.approx(metrics["test"]["recall"], abs=1e-9)
    refused = shell("predict", "bundle=adaptive_copy", "input=adaptive.jsonl", "output=adaptive.parquet", "budget=0.5")
    assert refused.exit_code == 2 and "budget" in refused.stderr
