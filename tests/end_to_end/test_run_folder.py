"""What a training run leaves behind, and that it can be had again."""

import csv
import json

import numpy as np
import pytest
import torch
import yaml

from seqclf.bundle.manifest import read_manifest
from seqclf.training.module import load_task

MAIN_METRICS = {"loss", "accuracy", "recall", "precision", "f1"}


def metrics_of(run):
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))


def test_a_run_folder_holds_all_that_a_run_is(trained):
    found = {path.relative_to(trained.run).as_posix() for path in trained.run.rglob("*") if path.is_file()}
    found = {name for name in found if not name.startswith(("wandb/", "bundle/"))}
    assert found == {
        "config.yaml",
        "metrics.json",
        "metrics.csv",
        "quarantine.jsonl",
        "report.html",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    }
    read_manifest(trained.run / "bundle")


def test_the_last_line_is_one_json_object(trained):
    (line,) = trained.done.out.splitlines()
    result = json.loads(line)
    test = metrics_of(trained.run)["test"]
    assert (result["epochs"], result["split"]) == (4, "test")
    assert {name: pytest.approx(test[name], abs=1e-6) for name in MAIN_METRICS} == {
        name: result[name] for name in MAIN_METRICS
    }
    assert result["run"] == str(trained.run) and result["bundle"] == str(trained.run / "bundle")
    assert 0 <= result["parity"] <= 1e-5


def test_stderr_holds_the_verdict_and_no_warning(runs):
    for trained in runs.values():
        assert "Verdict" in trained.done.err and "recall by class" in trained.done.err
        assert "Warning" not in trained.done.err and "Traceback" not in trained.done.err


def test_the_refused_row_is_counted_and_explained(trained):
    (line,) = (trained.run / "quarantine.jsonl").read_text().splitlines()
    refusal = json.loads(line)
    assert (refusal["file"], refusal["row"], refusal["column"]) == ("train.jsonl", 6, "shop")
    assert "empty" in refusal["reason"]
    counts = metrics_of(trained.run)["data"]
    assert sum(part["used"] for part in counts.values()) == 239 + 90
    assert sum(part["refused"] for part in counts.values()) == 1


def test_metrics_hold_every_split_and_the_positive_class(trained):
    metrics = metrics_of(trained.run)
    for split in ("train", "validation", "test"):
        assert set(metrics[split]) >= MAIN_METRICS | {
            "rows",
            "recall_by_class",
            "confusion",
            "positive",
            "by_length",
            "alarms",
        }
        assert ("intervals" in metrics[split]) == (split != "train")
        assert metrics[split]["positive"]["label"] == "yes", "the rarer one, where none is named"
        assert np.sum(metrics[split]["confusion"]) == metrics[split]["rows"]
        recalls = [value for value in metrics[split]["recall_by_class"].values() if value is not None]
        assert metrics[split]["recall"] == pytest.approx(np.mean(recalls))
    assert metrics["test"]["rows"] == 90
    assert metrics["test"]["positive"]["auroc"] > 0.8, "the task can be learned"


def test_metrics_csv_has_a_row_per_epoch_and_the_best_is_kept(trained):
    with (trained.run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    best, last = (torch.load(trained.run / f"checkpoints/{name}.ckpt", weights_only=True) for name in ("best", "last"))
    recalls = [float(row["validation/recall"]) for row in rows]
    assert recalls[best["epoch"]] == max(recalls)
    assert last["epoch"] == 3
    assert metrics_of(trained.run)["validation"]["recall"] == pytest.approx(max(recalls), rel=1e-6)


def test_the_config_is_the_recipe(trained):
    config = yaml.safe_load((trained.run / "config.yaml").read_text())
    assert config["trainer"]["max_epochs"] == 4 and config["data"]["train"] == "train.jsonl"
    assert config["model"] == load_task(trained.run / "checkpoints/best.ckpt").hparams["model"]


def test_two_runs_of_one_seed_are_equal_to_the_bit(runs):
    first, second = (
        {
            "metrics": metrics_of(trained.run),
            "weights": [load_task(trained.run / f"checkpoints/{name}.ckpt").state_dict() for name in ("best", "last")],
            "model": (trained.run / "bundle/model.onnx").read_bytes(),
        }
        for trained in runs.values()
    )
    assert first["metrics"] == second["metrics"]
    for one, other in zip(first["weights"], second["weights"], strict=True):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert first["model"] == second["model"]
