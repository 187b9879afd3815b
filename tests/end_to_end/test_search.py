"""The search command: trials are runs, a search can be continued, and the best settings are saved as a config."""

import json

import pytest
import yaml

pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

LSTM = "model=lstm"
SPACE = "search.space={optimizer.lr: {low: 1e-3, high: 1e-1, log: true}, model.pooling: [last, max]}"


@pytest.fixture(scope="module")
def searched(shell, files):
    """Result of a search with one trial, and the command that continued it to three trials in the same folder."""
    arguments = [*files, LSTM, "logger=none", "trainer.max_epochs=1", SPACE, "hydra.run.dir=searched"]
    first = shell("search", *arguments, "search.trials=1").result
    return first, shell("search", *arguments, "search.trials=3")


def test_every_trial_is_a_run_and_the_best_trial_is_reported(shell, searched):
    first, completed = searched
    result = completed.result
    runs = [json.loads((shell.folder / f"searched/trial-{trial}/metrics.json").read_text()) for trial in range(3)]
    recalls = [run["validation"]["recall"] for run in runs]
    assert (result["trials"], result["value"]) == (3, max(recalls))
    assert first["value"] == recalls[0]
    trials = [yaml.safe_load((shell.folder / f"searched/trial-{trial}/config.yaml").read_text()) for trial in range(3)]
    assert len({config["optimizer"]["lr"] for config in trials}) == 3, "no trial is repeated"
    best = yaml.safe_load((shell.folder / f"searched/trial-{recalls.index(max(recalls))}/config.yaml").read_text())
    assert result["best"] == {"optimizer.lr": best["optimizer"]["lr"], "model.pooling": best["model"]["pooling"]}
    assert best["decision"]["provisional"], "no trial may see the held-out rows of a guarantee"
    assert {config["decision"]["holdout"] for config in trials} == {0.5}
    assert "goes on after 1 trials" in completed.stderr and "trial 2: " in completed.stderr
    assert "rows of validation" in completed.stderr, "they are compared"


def test_best_settings_can_be_trained_from_the_saved_config(shell, files, searched):
    _, completed = searched
    data = [argument for argument in files if not argument.startswith("optimizer.lr=")]  # overrides beat the experiment
    again = [*data, LSTM, "experiment=best", "hydra.run.dir=best", "trainer.max_epochs=1"]
    result = shell("train", "--config-dir", "searched", *again, "logger=none", "export=false").result
    assert result["epochs"] == 1
    config = yaml.safe_load((shell.folder / "best/config.yaml").read_text())
    assert not config["decision"]["provisional"] and config["decision"]["holdout"] == 0.5
    assert config["optimizer"]["lr"] == completed.result["best"]["optimizer.lr"]
    assert config["model"]["pooling"] == completed.result["best"]["model.pooling"]
    assert completed.stderr.splitlines()[-1].endswith("experiment=best"), "how to train it"


def test_search_continues_only_with_the_same_settings(shell, files, searched):
    arguments = [
        *files,
        "model=lstm",
        "logger=none",
        "trainer.max_epochs=2",
        SPACE,
        "hydra.run.dir=searched",
        "search.trials=4",
    ]
    completed = shell("search", *arguments)
    assert completed.exit_code == 2 and "searched: holds trials of other settings (" in completed.stderr
