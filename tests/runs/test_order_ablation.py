"""order_ablation=true: what the order of the tokens adds, on data where the order decides and where it does not."""

import csv
import json

import numpy as np
import pyarrow as pa
import pytest
import torch

import seqclf
from seqclf import InputError

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=16", "model.embedding_size=8", "export=false"]
SETTINGS += ["model=lstm", "optimizer.lr=1e-2", "order_ablation=true", "data.split.validation=0.2"]
TOKENS = 8


def ordered_rows(count, seed):
    """Rows with one a and one b each. The class says which of them comes first."""
    generator = np.random.default_rng(seed)
    tokens = generator.choice(list("cdef"), (count, TOKENS))
    is_first = generator.random(count) < 0.5
    for row, first in zip(tokens, is_first, strict=True):
        row[np.sort(generator.choice(TOKENS, 2, replace=False))] = ["a", "b"] if first else ["b", "a"]
    return pa.table({"code": tokens.tolist(), "label": np.where(is_first, "yes", "no")})


def train(folder, *overrides, rows=1000):
    settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", *overrides]
    return seqclf.fit(
        ordered_rows(rows, 0), label="label", test=ordered_rows(400, 1), overrides=settings, folder=folder / "run"
    )


@pytest.mark.slow
def test_where_the_order_decides_the_network_adds_it(tmp_path):
    run = train(tmp_path, "trainer.max_epochs=8")
    blind, shuffled, network = run.metrics["ladder"]
    assert [blind["name"], shuffled["name"], network["name"]] == ["order-blind", "shuffled tokens", "network"]
    assert {rung["rows"] for rung in run.metrics["ladder"]} == {400}
    chance = 4 * np.sqrt(0.25 / 400)
    assert abs(shuffled["accuracy"] - 0.5) < chance and abs(blind["accuracy"] - 0.5) < chance
    assert shuffled["gain"][0]["low"] < 0 < shuffled["gain"][0]["high"]
    assert network["gain"][0]["low"] > 0.2 and network["accuracy"] == run.metrics["test"]["accuracy"]
    assert not (run.folder / "order_ablation").exists()
    assert json.loads((run.folder / "metrics.json").read_text())["ladder"] == run.metrics["ladder"]
    assert f"{shuffled['value']:.4f}" in (run.folder / "report.html").read_text(encoding="utf-8")


def test_the_ablation_changes_nothing_else(tmp_path):
    with_it = train(tmp_path / "with", "trainer.max_epochs=1", rows=200).metrics
    without = train(tmp_path / "without", "trainer.max_epochs=1", "order_ablation=false", rows=200).metrics
    assert [rung["name"] for rung in without["ladder"]] == ["order-blind", "network"]
    for key in ("test", "validation", "baseline"):
        assert with_it[key] == without[key]


def test_the_metrics_of_validation_are_those_of_the_best_epoch(tmp_path):
    run = train(tmp_path, "trainer.max_epochs=3", "order_ablation=false", rows=200)
    with (run.folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    best = torch.load(run.folder / "checkpoints/best.ckpt", weights_only=True)["epoch"]
    assert run.metrics["validation"]["recall"] == pytest.approx(float(rows[best]["validation/recall"]), rel=1e-6)


def test_a_failed_ablation_does_not_cost_the_model(tmp_path, monkeypatch, capsys):
    import seqclf.runs.order_ablation as ablation

    def fail(*arguments):
        raise InputError("step 3", "out of memory")

    monkeypatch.setattr(ablation, "shuffle_split", fail)
    run = train(tmp_path, "trainer.max_epochs=1", rows=200)
    assert [rung["name"] for rung in run.metrics["ladder"]] == ["order-blind", "network"]
    assert "order_ablation=true: step 3: out of memory" in capsys.readouterr().err
    assert not (run.folder / "order_ablation").exists()


def test_trees_are_rejected_before_their_rows_are_read(tmp_path):
    trees = pa.table({"tree": ["(1 (2 a) (3 b))"] * 20, "label": ["yes", "no"] * 10})
    settings = [*SETTINGS, "model=tree_lstm", "data.fields={tree: tree}", f"data.cache_dir={tmp_path / 'cache'}"]
    settings = [text for text in settings if "hidden_size" not in text and "embedding_size" not in text]
    with pytest.raises(InputError, match=r"^order_ablation=true: .*tree.*order_ablation=false"):
        seqclf.fit(trees, label="label", overrides=settings, folder=tmp_path / "run")
