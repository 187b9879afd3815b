"""`python -m seqclf.search`: trials are runs, a search continues in its folder, the best settings become a file."""

import json

import pytest
import yaml

pytest.importorskip("optuna")

SPACE = "search.space={optimizer.lr: {low: 1e-3, high: 1e-1, log: true}, model.pooling: [last, max]}"


@pytest.fixture(scope="module")
def searched(shell, files):
    """One trial, then two more by a search for three in the same folder."""
    arguments = [*files, "logger=none", "trainer.max_epochs=1", SPACE, "hydra.run.dir=searched"]
    first = shell("search", *arguments, "search.trials=1").result
    return first, shell("search", *arguments, "search.trials=3")


def test_every_trial_is_a_run_and_the_best_is_reported(shell, searched):
    first, done = searched
    result = done.result
    runs = [json.loads((shell.here / f"searched/trial-{k}/metrics.json").read_text()) for k in range(3)]
    recalls = [run["validation"]["recall"] for run in runs]
    assert (result["trials"], result["value"]) == (3, max(recalls))
    assert first["value"] == recalls[0]
    best = yaml.safe_load((shell.here / f"searched/trial-{recalls.index(max(recalls))}/config.yaml").read_text())
    assert result["best"] == {"optimizer.lr": best["optimizer"]["lr"], "model.pooling": best["model"]["pooling"]}
    assert best["decision"]["provisional"], "no trial sees the rows held out for a guarantee"
    assert (shell.here / "searched/search.png").stat().st_size > 10_000
    assert "goes on after 1 trials" in done.err and "trial 2: " in done.err


def test_the_best_settings_train_again_from_their_file(shell, files, searched):
    _, done = searched
    data = [text for text in files if not text.startswith("optimizer.lr=")]  # overrides beat the experiment
    again = [*data, "experiment=best", "hydra.run.dir=best", "trainer.max_epochs=1"]
    result = shell("train", "--config-dir", "searched", *again, "logger=none", "export=false").result
    assert result["epochs"] == 1
    config = yaml.safe_load((shell.here / "best/config.yaml").read_text())
    assert not config["decision"]["provisional"]
    assert config["optimizer"]["lr"] == done.result["best"]["optimizer.lr"]
    assert f"model.pooling={config['model']['pooling']}" in done.err.splitlines()[-1], "the command to train it"


def test_a_search_continues_with_equal_settings_only(shell, files, searched):
    arguments = [*files, "logger=none", "trainer.max_epochs=2", SPACE, "hydra.run.dir=searched", "search.trials=4"]
    done = shell("search", *arguments)
    assert done.code == 2 and "searched: holds trials of other settings (" in done.err


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("search.space={model.colour: [1, 2]}", "model.colour"),
        ("search.space={optimizer.lr: {low: 2, high: 1}}", "low must be a number below high"),
        ("search.space={optimizer.lr: []}", "has no choice"),
    ],
)
def test_an_invalid_space_is_one_error_line(shell, files, space, message):
    arguments = [*files, "logger=none", "trainer.max_epochs=1", "search.trials=1", "hydra.run.dir=failed"]
    done = shell("search", *arguments, space)
    assert done.code == 2 and done.err.splitlines()[-1].startswith("error: ") and message in done.err
