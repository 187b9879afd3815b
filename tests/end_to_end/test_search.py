"""`python -m seqclf.search`: trials that are runs, a search that goes on, the best settings as a file."""

import json

import pytest
import yaml

pytest.importorskip("optuna")

SPACE = "search.space={optimizer.lr: {low: 1e-3, high: 1e-1, log: true}, model.pooling: [last, max]}"


@pytest.fixture(scope="module")
def searched(shell, files):
    """A trial, then two more in the same folder, which is asked for three."""
    arguments = [*files, "logger=none", "trainer.max_epochs=1", SPACE, "hydra.run.dir=searched"]
    first = shell("search", *arguments, "search.trials=1").result
    return first, shell("search", *arguments, "search.trials=3")


def test_every_trial_is_a_run_and_the_best_one_is_told(shell, searched):
    first, done = searched
    result = done.result
    runs = [json.loads((shell.here / f"searched/trial-{k}/metrics.json").read_text()) for k in range(3)]
    recalls = [run["validation"]["recall"] for run in runs]
    assert (result["trials"], result["value"]) == (3, max(recalls))
    assert first["value"] == recalls[0]
    best = yaml.safe_load((shell.here / f"searched/trial-{recalls.index(max(recalls))}/config.yaml").read_text())
    assert result["best"] == {"optimizer.lr": best["optimizer"]["lr"], "model.pooling": best["model"]["pooling"]}
    assert best["decision"]["provisional"], "no trial sees the rows that a promise rests on"
    assert (shell.here / "searched/search.png").stat().st_size > 10_000
    assert "goes on after 1 trials" in done.err and "trial 2: " in done.err


def test_the_best_settings_train_again_from_their_file(shell, files, searched):
    _, done = searched
    data = [one for one in files if not one.startswith("optimizer.lr=")]  # what is typed goes before an experiment
    again = [*data, "experiment=best", "hydra.run.dir=best", "trainer.max_epochs=1"]
    result = shell("train", "--config-dir", "searched", *again, "logger=none", "export=false").result
    assert result["epochs"] == 1
    config = yaml.safe_load((shell.here / "best/config.yaml").read_text())
    assert not config["decision"]["provisional"]
    assert config["optimizer"]["lr"] == done.result["best"]["optimizer.lr"]
    assert f"model.pooling={config['model']['pooling']}" in done.err.splitlines()[-1], "the command to train it"


def test_a_search_goes_on_with_its_own_settings_only(shell, files, searched):
    arguments = [*files, "logger=none", "trainer.max_epochs=2", SPACE, "hydra.run.dir=searched", "search.trials=4"]
    done = shell("search", *arguments)
    assert done.code == 2 and "searched: holds trials of other settings (" in done.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("search.space={model.colour: [1, 2]}", "model.colour"),
        ("search.space={optimizer.lr: {low: 2, high: 1}}", "low must be a number below high"),
        ("search.space={optimizer.lr: []}", "has no choice"),
    ],
)
def test_what_cannot_be_searched_is_one_line(shell, files, given, told):
    arguments = [*files, "logger=none", "trainer.max_epochs=1", "search.trials=1", "hydra.run.dir=failed"]
    done = shell("search", *arguments, given)
    assert done.code == 2 and done.err.splitlines()[-1].startswith("error: ") and told in done.err
