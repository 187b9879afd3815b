"""Comparing finished runs from their files: the command, and the table after a multirun and a search."""

import json
import re

import pytest


def test_equal_models_are_not_shown_to_differ(shell, runs):
    completed = shell("compare", "runs=[logged,again,logged]", "against=again")
    found = {setting["runs"][0]: setting for setting in completed.result["settings"]}
    assert {run: setting["setting"] for run, setting in found.items()} == {
        "logged": "trainer.log_every_n_steps=5",
        "again": "trainer.log_every_n_steps=50",
    }
    metrics = json.loads((runs["logged"].run / "metrics.json").read_text())["test"]
    expected = pytest.approx([metrics["positive"]["average_precision"]], abs=1e-6)
    assert all(setting["scores"]["average precision"] == expected for setting in found.values())
    difference = found["logged"]["difference"]
    assert difference["low"] < difference["difference"] == 0 < difference["high"] and not found["again"]["difference"]
    assert "not shown to differ" in completed.stderr
    (weights,) = re.findall(r"^model: ([\d,]+) weights", runs["logged"].command.stderr, re.MULTILINE)
    assert found["logged"]["weights"] == int(weights.replace(",", "")) and found["logged"]["train_s"] > 0


def test_an_unfinished_run_is_named_beside_the_rows_that_are_asked_for(shell, runs):
    completed = shell("compare", "runs=[logged,home]", "split=validation")
    assert completed.result["split"] == "validation"
    assert completed.result["alerts"] == {"home": "holds no scores of a finished run"}
    assert "home: holds no scores of a finished run" in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "runs: not set"),
        (["runs=[home]"], "runs=[home]: holds no scores of a finished run"),
        (["runs=logged", "against=again"], "against=again: is none of the runs"),
        (["runs=[none/*]"], "runs=[none/*]: holds no scores of a finished run"),
    ],
)
def test_a_user_error_is_one_line(shell, runs, arguments, error):
    completed = shell("compare", *arguments)
    assert completed.exit_code == 2 and error in completed.stderr.splitlines()[-1]


def test_the_runs_of_a_multirun_are_compared_at_its_end(shell):
    rows = "data.generator.rows={train: 200, validation: 60, test: 60}"
    quick = ["data=toy", rows, "trainer.max_epochs=1", "logger=none", "baseline=false", "export=false"]
    completed = shell("train", "-m", *quick, "model=lstm,gru", "model.hidden_size=8", "hydra.sweep.dir=compared")
    assert json.loads(completed.stdout.splitlines()[-1])["run"].endswith("compared/1"), "the line of the last run"
    table = completed.stderr.partition("\nComparison on 60 rows of test\n")[2]
    names = {line.split()[0] for line in table.splitlines() if line.startswith("model")}
    assert names == {"model.cell=lstm", "model.cell=gru"}


def test_a_multirun_without_scores_ends_without_a_table(shell):
    quick = ["data=toy", "trainer.fast_dev_run=true", "logger=none", "seed=0,1", "hydra.sweep.dir=unscored"]
    completed = shell("train", "-m", *quick)
    assert completed.exit_code == 0 and "Comparison on" not in completed.stderr and "raised" not in completed.stderr


@pytest.mark.parametrize("rates", ["1e30,0.01,0.02", "1e30"])
def test_a_failing_job_ends_no_multirun_and_is_named_in_its_table(shell, rates):
    folder = f"failing_{len(rates)}"
    rows = "data.generator.rows={train: 100, validation: 60, test: 60}"
    quick = ["data=toy", rows, "trainer.max_epochs=1", "logger=none", "baseline=false", "export=false", "model=gru"]
    sweep = [f"optimizer.lr={rates}", "model.hidden_size=8", f"hydra.sweep.dir={folder}"]
    completed = shell("train", "-m", *quick, *sweep)
    assert completed.exit_code == 2 and "Traceback" not in completed.stderr
    finished = [json.loads(line)["run"] for line in completed.stdout.splitlines()]
    assert [run[-1] for run in finished] == [str(job) for job in range(1, 1 + rates.count(","))]
    (error,) = re.findall("^error: (.*)", completed.stderr, re.MULTILINE)
    (named,) = re.findall(rf"^.*{folder}/0: (.*)", completed.stderr, re.MULTILINE)
    assert named.startswith(error[:40]) and ("Comparison on" in completed.stderr) == bool(finished)
