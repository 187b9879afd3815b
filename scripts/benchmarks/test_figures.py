"""scripts/benchmarks/figures.py: what it runs and how it sums up."""

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


def test_runs_are_summed_up_as_mean_range_and_how_many_reached_what(figures):
    figure = figures.Figure("", ["test.positive.recall"], seeds=3, reached=(("test.positive.recall", 0.8),))
    runs = [{"test": {"positive": {"recall": value}}, "seconds": 2.0} for value in (0.7, 0.8, 0.9)]
    found = figures.summarise(figure, runs)
    assert found["test.positive.recall"] == {"mean": 0.8, "min": 0.7, "max": 0.9}
    assert found["test.positive.recall >= 0.8"] == {"runs": 2, "of": 3}


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_seed_is_a_command_of_its_own(figures, monkeypatch, tmp_path, lanes):
    commands = {}

    def train(folder, overrides):
        commands[folder.name] = overrides
        return {"test": {"recall": int(folder.name)}, "seconds": 1.0}

    monkeypatch.setattr(figures, "train", train)
    chosen = {"some, folds": figures.Figure("a={path} seed={seed}", ["test.recall"], seeds=4, option="some")}
    found = figures.measure(chosen, {"some": "my DIR"}, lanes, tmp_path)
    assert found["some, folds"]["test.recall"]["mean"] == 1.5
    threads = ["runtime.threads=1"] if lanes == 2 else []
    assert commands == {str(seed): ["a=my DIR", f"seed={seed}", *threads] for seed in range(4)}


def test_a_failing_run_ends_the_others(figures, monkeypatch, tmp_path):
    begun = []

    def train(folder, overrides):
        begun.append(folder.name)
        sys.exit("failed")

    monkeypatch.setattr(figures, "train", train)
    with pytest.raises(SystemExit, match="failed"):
        figures.measure({"one": figures.Figure("a=1", [], seeds=50)}, {}, 1, tmp_path)
    assert len(begun) < 50


def test_only_the_precision_of_no_alerts_may_be_undefined(figures):
    found = {"test": {"precision": None, "auroc": None}}
    assert figures.value_at(found, "test.precision") == 0.0
    with pytest.raises(TypeError):
        figures.value_at(found, "test.auroc")


@pytest.mark.slow
def test_each_figure_names_what_a_run_writes(figures, tmp_path):
    """One real run of two classes has every number that the figures of two classes ask for."""
    rows = "data.generator.rows={train: 200, validation: 100, test: 100}"
    few = ["data=transactions", rows, "data.generator.fraud_share=0.1", "trainer.max_epochs=1", "export=false"]
    figures.train(tmp_path / "run", few)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    two = [place for name, one in figures.FIGURES.items() if "positive" in str(one.metrics) for place in one.metrics]
    assert all(0 <= figures.value_at(found, place) <= 1 for place in two) and len(two) > 8
    with pytest.raises(KeyError):
        figures.value_at(found, "test.positive.no_such_number")


def test_a_public_set_asks_for_its_folder():
    done = subprocess.run([sys.executable, SCRIPT, "--only", "hdfs"], capture_output=True, text=True)
    assert done.returncode == 2 and "give the folder of --hdfs" in done.stderr
