"""model=adaptive through the commands: train, resume, export, predict, evaluate, with the same figures in each."""

import json
import shutil

import pyarrow.parquet as pq
import pytest


@pytest.mark.slow
def test_an_adaptive_model_goes_through_all_commands(shell):
    options = ["data=toy", "model=adaptive", "model.hidden_size=16", "logger=none", "baseline=false"]
    trained = shell("train", *options, "trainer.max_epochs=2", "hydra.run.dir=adaptive").result
    metrics = json.loads((shell.folder / "adaptive/metrics.json").read_text())
    halting = metrics["halting"]
    assert halting["splits"]["validation"][-1]["tokens"] == 1
    assert "Tokens read" in (shell.folder / "adaptive/report.html").read_text(encoding="utf-8")

    checkpoint = "checkpoint=adaptive/checkpoints/last.ckpt"
    resumed = shell(
        "train", *options, "trainer.max_epochs=2", "export=false", checkpoint, "hydra.run.dir=adaptive_resumed"
    )
    assert json.loads((shell.folder / "adaptive_resumed/metrics.json").read_text())["halting"] == halting, (
        resumed.stderr
    )
    exported = shell("export", "checkpoint=adaptive/model.ckpt", "bundle=adaptive_copy").result
    assert exported["parity"] == trained["parity"] < 1e-5

    shutil.copytree(shell.folder / "adaptive/checkpoints", shell.folder / "adaptive_moved/checkpoints")
    unscored = shell("export", "checkpoint=adaptive_moved/model.ckpt", "bundle=adaptive_unscored")
    assert "the bundle reads every sequence to its end: " in unscored.stderr
    assert "adaptive_moved/metrics.json, which has the curve of tokens read, is missing" in unscored.stderr

    evaluated = shell("evaluate", "bundle=adaptive_copy", "data=toy").result
    assert evaluated["recall"] == pytest.approx(metrics["test"]["recall"], abs=1e-9)
    knee = next(point for point in halting["splits"]["test"] if point["threshold"] == halting["threshold"])
    assert evaluated["share_read"] == pytest.approx(knee["tokens"], abs=1e-9)

    rows = [{"id": row, "tokens": [row % 7 + 1] * (3 + row % 20)} for row in range(50)]
    (shell.folder / "adaptive.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ["bundle=adaptive_copy", "input=adaptive.jsonl", "output=adaptive.parquet"]
    shares = []
    for budget in ("0.3", "1"):
        result = shell(
            "predict", "bundle=adaptive_copy", "input=adaptive.jsonl", "output=adaptive.parquet", f"budget={budget}"
        ).result
        read = pq.read_table(shell.folder / "adaptive.parquet").column("tokens_read").to_pylist()
        assert sum(read) == result["tokens_read"] and all(1 <= count <= 3 + row % 20 for row, count in enumerate(read))
        shares.append(result["share_read"])
    assert shares[0] < shares[1] == 1
    refused = shell("predict", *files, "budget=0")
    assert refused.exit_code == 2 and "budget=0: must be above 0" in refused.stderr
