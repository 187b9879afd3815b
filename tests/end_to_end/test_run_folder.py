"""Contents of a run folder, and reproducibility of a run."""

import csv
import json
import re
from html import unescape

import numpy as np
import pytest
import torch
import yaml

from seqclf.bundle.manifest import read_bundle
from seqclf.evaluation.result import RunResult
from seqclf.report.verdict import capitalized
from seqclf.training.task import load_task

MAIN_METRICS = {"loss", "accuracy", "recall", "precision", "f1"}


def metrics_of(run):
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))


def test_run_folder_holds_exactly_the_documented_files(trained):
    names = {path.relative_to(trained.run).as_posix() for path in trained.run.rglob("*") if path.is_file()}
    names = {name for name in names if not name.startswith(("wandb/", "bundle/"))}
    models = (
        "logistic_regression",
        "gradient_boosting",
        "linear",
        "statistics",
        "categories",
        "ngrams",
        "recurrent",
        "network",
    )
    assert names == {
        *(f"scores/{number}-{model}.parquet" for number, model in enumerate(models)),
        "data.json",
        "fit.json",
        "steps.json",
        "config.yaml",
        "metrics.json",
        "metrics.csv",
        "predictions.parquet",
        "suspects.parquet",
        "quarantine.jsonl",
        "report.html",
        "shared/report.html",
        "shared/metrics.json",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "model.ckpt",
    }
    read_bundle(trained.run / "bundle")


def test_the_result_of_a_run_is_read_and_written_unchanged(runs):
    for trained in runs.values():
        text = (trained.run / "metrics.json").read_text(encoding="utf-8")
        result = RunResult.from_dict(json.loads(text))
        assert json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n" == text
        assert result.splits and result.leaks is not None and result.calibration is not None


def test_stdout_is_one_json_line_with_the_test_metrics(trained):
    (line,) = trained.command.stdout.splitlines()
    result = json.loads(line)
    test = metrics_of(trained.run)["test"]
    assert (result["epochs"], result["split"]) == (4, "test")
    assert {name: pytest.approx(test[name], abs=1e-6) for name in MAIN_METRICS} == {
        name: result[name] for name in MAIN_METRICS
    }
    assert result["run"] == str(trained.run) and result["bundle"] == str(trained.run / "bundle")
    assert 0 <= result["parity"] <= 1e-5


def test_stderr_holds_the_verdict_and_no_warnings(runs):
    for trained in runs.values():
        assert "Verdict on test" in trained.command.stderr and "lowest recall by class: " in trained.command.stderr
        assert "Warning" not in trained.command.stderr and "Traceback" not in trained.command.stderr


def test_the_model_is_compared_with_the_baseline_and_the_same_sentences_are_shown_everywhere(trained):
    metrics = metrics_of(trained.run)
    comparisons = metrics["baseline"]["comparisons"]
    assert [entry["metric"] for entry in comparisons] == ["average_precision", "recall_at_equal_alerts", "accuracy"]
    test, first = metrics["test"], comparisons[0]
    assert first["model"] == pytest.approx(test["positive"]["average_precision"])
    assert first["baseline"] == pytest.approx(metrics["baseline"]["positive"]["average_precision"])
    assert comparisons[1]["model"] == pytest.approx(test["positive"]["recall"])
    assert comparisons[2]["baseline"] == pytest.approx(metrics["baseline"]["accuracy"])
    is_alarm = "not_better_than_baseline" in {alarm["kind"] for alarm in test["alarms"]}
    assert is_alarm == (first["low"] <= 0)
    card = (trained.run / "bundle/MODEL_CARD.md").read_text(encoding="utf-8")
    page = unescape(re.sub(r"</?span[^>]*>", "", (trained.run / "report.html").read_text(encoding="utf-8")))
    for text in (trained.command.stderr, card.replace("\\", ""), page):
        assert (f"Next: {metrics['next']}" if text is trained.command.stderr else capitalized(metrics["next"])) in text
        assert "Of 100 sequences labelled yes it finds " in text


def test_worst_errors_are_explained(trained):
    page = (trained.run / "report.html").read_text(encoding="utf-8")
    assert ("<dt>predicted as</dt>" in page) == (re.search('style="[^"]*--share:', page) is not None)


def test_refused_row_is_counted_and_explained(trained):
    (line,) = (trained.run / "quarantine.jsonl").read_text().splitlines()
    refusal = json.loads(line)
    assert (refusal["file"], refusal["row"], refusal["column"]) == ("train.jsonl", 6, "shop")
    assert "empty" in refusal["reason"]
    counts = metrics_of(trained.run)["data"]
    assert sum(part["used"] for part in counts.values()) == 239 + 90
    assert sum(part["refused"] for part in counts.values()) == 1


def test_metrics_cover_every_split_and_the_positive_class(trained):
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
        assert metrics[split]["positive"]["label"] == "yes", "by default the rarer class is positive"
        assert np.sum(metrics[split]["confusion"]) == metrics[split]["rows"]
        recalls = [value for value in metrics[split]["recall_by_class"].values() if value is not None]
        assert metrics[split]["recall"] == pytest.approx(np.mean(recalls))
    assert metrics["test"]["rows"] == 90
    assert metrics["test"]["positive"]["auroc"] > 0.7, "the task can be learned"


def test_metrics_csv_has_one_row_per_epoch_and_the_last_epoch_is_saved(trained):
    with (trained.run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    best, last = (torch.load(trained.run / f"checkpoints/{name}.ckpt", weights_only=True) for name in ("best", "last"))
    assert best["epoch"] == last["epoch"] == 3, "without a monitor, the last step is the best"


def test_config_file_holds_the_resolved_settings_of_the_run(trained):
    config = yaml.safe_load((trained.run / "config.yaml").read_text())
    assert config["trainer"]["max_epochs"] == 4 and config["data"]["train"] == "train.jsonl"
    assert config["model"] == load_task(trained.run / "model.ckpt").hparams["model"]


def test_two_runs_with_one_seed_are_bit_identical(runs):
    first, second = (
        {
            "metrics": metrics_of(trained.run),
            "weights": [load_task(trained.run / f"checkpoints/{name}.ckpt").state_dict() for name in ("best", "last")],
            "model": (trained.run / "bundle/model.onnx").read_bytes(),
        }
        for trained in runs.values()
    )
    assert first["metrics"] == second["metrics"]
    for weights, other_weights in zip(first["weights"], second["weights"], strict=True):
        assert list(weights) == list(other_weights)
        assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    assert first["model"] == second["model"]
