"""figures.py: its commands and its summaries."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "figures.py"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["figures"]


def test_runs_are_summarized_by_mean_range_and_threshold(figures):
    figure = figures.Figure("", ["test.positive.recall"], seeds=3, thresholds=(("test.positive.recall", 0.8),))
    runs = [{"test": {"positive": {"recall": value}}, "seconds": 2.0} for value in (0.7, 0.8, 0.9)]
    summary = figures.summarize(figure, runs)
    assert summary["test.positive.recall"] == {"mean": 0.8, "min": 0.7, "max": 0.9}
    assert summary["test.positive.recall >= 0.8"] == {"runs": 2, "of": 3}


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_seed_is_trained_by_a_command_of_its_own(figures, monkeypatch, tmp_path, lanes):
    commands = {}

    def train(run_folder, overrides):
        commands[run_folder.name] = overrides
        return {"test": {"recall": int(run_folder.name)}, "seconds": 1.0}

    monkeypatch.setattr(figures, "train", train)
    selected = {"some, folds": figures.Figure("a={path} seed={seed}", ["test.recall"], seeds=4, option="some")}
    results = figures.measure(selected, {"some": "my DIR"}, lanes, tmp_path)
    assert results["some, folds"]["test.recall"]["mean"] == 1.5
    threads = ["runtime.threads=1"] if lanes == 2 else []
    assert commands == {str(seed): ["a=my DIR", f"seed={seed}", *threads] for seed in range(4)}


def test_a_failing_run_cancels_the_others(figures, monkeypatch, tmp_path):
    started = []

    def train(run_folder, overrides):
        started.append(run_folder.name)
        sys.exit("failed")

    monkeypatch.setattr(figures, "train", train)
    with pytest.raises(SystemExit, match="failed"):
        figures.measure({"one": figures.Figure("a=1", [], seeds=50)}, {}, 1, tmp_path)
    assert len(started) < 50


def test_only_the_precision_without_alerts_may_be_undefined(figures):
    metrics = {"test": {"precision": None, "auroc": None}}
    assert figures.metric_value(metrics, "test.precision") == 0.0
    with pytest.raises(TypeError):
        figures.metric_value(metrics, "test.auroc")


@pytest.mark.soak
def test_a_run_writes_every_metric_of_the_figures(figures, tmp_path):
    """A small run with two classes has every number that the figures with two classes read."""
    rows = "data.generator.rows={train: 200, validation: 100, test: 100}"
    overrides = ["data=transactions", rows, "data.generator.fraud_share=0.1", "trainer.max_epochs=1", "export=false"]
    figures.train(tmp_path / "run", overrides)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    two_class_figures = [figure for figure in figures.FIGURES.values() if "positive" in str(figure.metrics)]
    keys = [key for figure in two_class_figures for key in figure.metrics]
    assert all(0 <= figures.metric_value(metrics, key) <= 1 for key in keys) and len(keys) > 8
    with pytest.raises(KeyError):
        figures.metric_value(metrics, "test.positive.no_such_number")


def test_a_public_set_needs_its_folder():
    completed = subprocess.run([sys.executable, SCRIPT, "--only", "hdfs"], capture_output=True, text=True)
    assert completed.returncode == 2 and "set the folder of --hdfs" in completed.stderr


def test_the_readme_shows_the_recorded_figures(figures):
    readme = (SCRIPT.parents[2] / "README.md").read_text()
    recorded = figures.recorded.load()
    table = figures.recorded.table(recorded)
    assert len(table) == 2 + len(figures.recorded.ROWS) and "\n".join(table) in readme
    assert figures.recorded.speed(recorded) in " ".join(readme.split())


def test_recorded_figures_replace_those_of_the_same_name_only(figures, tmp_path):
    path = tmp_path / "figures.json"
    figures.recorded.record({"one": {"test.recall": 1}, "two": {"test.recall": 2}}, path)
    figures.recorded.record(
        figures.with_commands({"one": {"test.recall": 3}}, {"one": figures.Figure("a=1", [])}), path
    )
    held = figures.recorded.load(path)
    assert held["two"]["test.recall"] == 2 and held["one"]["test.recall"] == 3
    assert held["one"]["command"] == "seqclf train a=1" and held["one"]["runs"] == 5
