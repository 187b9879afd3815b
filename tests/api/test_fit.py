"""Training from Python: the same run as the command's, the same errors, and nothing left behind in the process."""

import importlib
import json
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hydra.core.global_hydra import GlobalHydra
from sklearn.metrics import fbeta_score
from support.installed_package import documented_example, install_package

import seqclf
import seqclf.runs.steps  # its packages add warning filters, and draw random numbers, when they are first imported
from seqclf import InputError
from seqclf.api import fit as fit_module
from seqclf.api.fit import training_setup
from seqclf.training.task import load_task

from .conftest import FAST, make_frame


def test_a_run_holds_what_the_command_writes(run):
    names = {path.name for path in run.folder.iterdir()}
    assert {"config.yaml", "metrics.json", "metrics.csv", "predictions.parquet", "report.html"} <= names
    assert {"bundle", "checkpoints"} <= names
    assert run.metrics["test"]["rows"] == 20 and run.metrics["test"]["positive"]["label"] == "fraud"


def test_the_config_of_a_run_names_the_rows_that_trained_it(run, frame):
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    stored = pq.read_table(config["data"]["train"])
    assert stored.column("card").to_pylist() == frame["card"].tolist()
    assert Path(config["data"]["train"]).stat().st_mode & 0o077 == 0, "only the user reads the table"
    assert config["data"]["label"] == "label" and config["data"]["id"] == "card"


def test_the_same_table_is_prepared_once(frame):
    first = seqclf.load_data(frame, label="label")
    again = seqclf.load_data(frame.copy(), label="label")
    assert again.reused and again.folder == first.folder
    assert not seqclf.load_data(frame.iloc[1:], label="label", overrides=["seed=1"]).reused


def test_a_named_level_of_the_index_is_a_column_where_the_config_names_it(frame):
    named = frame.set_index("card")
    assert seqclf.load_data(named, label="label", overrides=["data.id=card"]).schema.id == "card"
    assert "card" not in seqclf.load_data(named, label="label").schema.ignored


ERRORS = {
    "a label that is no column": ({"label": "lable"}, r"^data: no column 'lable' \(data.label\); did you mean 'label'"),
    "a column of the test that is missing": (
        {"label": "label", "test": {"shops": [["food"]]}},
        r"^test: no column 'label' \(data.label\)",
    ),
    "an override of an argument": (
        {"label": "label", "overrides": ["data.label=x"]},
        "data.label=x: is what the argument label sets; remove one",
    ),
    "a bad row": ({"label": "label", "overrides": ["data.max_bad_share=0", "data.max_length=3"]}, r"^data: row \d+: "),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_line_that_names_the_argument(frame, case, tmp_path, capsys):
    arguments, expected = ERRORS[case]
    arguments = dict(arguments)
    if "test" in arguments:
        arguments["test"] = pa.table(arguments["test"])
    with pytest.raises(InputError, match=expected) as raised:
        seqclf.fit(frame, **arguments, folder=tmp_path / "runs" / "new")
    assert "\n" not in str(raised.value) and not (tmp_path / "runs" / "new").exists()


def test_a_folder_that_holds_a_run_is_refused(run, frame):
    with pytest.raises(InputError, match=r"holds a run already"):
        seqclf.fit(frame, label="label", folder=run.folder)


def test_the_run_folder_is_that_of_the_command_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    setup = training_setup({"data": "train.csv"}, "label", ())
    assert setup.run_folder.parent == tmp_path / "runs" / "files"
    assert training_setup({"data": "a.csv"}, "y", ["hydra.run.dir=mine"]).run_folder == tmp_path / "mine"


@pytest.mark.parametrize(
    ("overrides", "devices"), [([], 1), (["trainer.devices=2"], 2), (["trainer.strategy=ddp"], "auto")]
)
def test_one_device_trains_unless_the_user_says_otherwise(overrides, devices):
    setup = training_setup({"data": "train.csv"}, "label", overrides)
    assert fit_module._one_device(setup.config).trainer["devices"] == devices


@pytest.fixture
def training(monkeypatch):
    """`training(act)` replaces the training by a function, for what `fit` does around it."""

    def replace(act):
        def run_training(config, folder):
            from seqclf.runs.process_settings import process_settings

            folder.mkdir(parents=True)
            with process_settings(config.runtime, config.seed):
                act()
            (folder / "config.yaml").write_text("{}")

        monkeypatch.setattr("seqclf.runs.run_training.run_training", run_training)

    return replace


def process_state():
    return {
        "random": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "denormal": float(torch.tensor(1e-310, dtype=torch.float64) * 0.5),
        "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "warnings": list(warnings.filters),
        "seeds": [os.environ.get(name) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")],
        "hydra": GlobalHydra.instance().is_initialized(),
        "folder": Path.cwd(),
    }


def test_the_process_is_as_before_after_a_training(frame, training, tmp_path):
    def act():
        changed = process_state()
        assert changed["threads"] == 2 and changed["denormal"] == 0 and changed["seeds"] == ["3", "1"]
        assert changed["warnings"] != before["warnings"] and changed["handlers"] != before["handlers"]
        random.random(), np.random.rand(), torch.rand(1)

    before = process_state()
    assert before["denormal"] > 0
    training(act)
    seqclf.fit(frame, label="label", overrides=["seed=3", "runtime.threads=2"], folder=tmp_path / "run")
    assert process_state() == before


def test_the_process_is_as_before_after_an_error(frame, training, tmp_path):
    def fail():
        raise InputError("no")

    before = process_state()
    training(fail)
    with pytest.raises(InputError, match=r"^no$"):
        seqclf.fit(frame, label="label", folder=tmp_path / "run")
    assert process_state() == before


def test_an_interrupt_ends_the_training_and_is_a_keyboard_interrupt(frame, training, tmp_path):
    before = process_state()
    training(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGINT"):
        seqclf.fit(frame, label="label", folder=tmp_path / "run")
    assert process_state() == before and not (tmp_path / "run").exists()


def test_threads_train_one_after_another(frame, training, tmp_path):
    running, most, together = [], [], threading.Barrier(2)

    def act():
        running.append(1)
        most.append(len(running))
        threading.Event().wait(0.05)
        running.pop()

    training(act)

    def work(name):
        together.wait()
        seqclf.fit(frame, label="label", folder=tmp_path / name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1] and (tmp_path / "a/config.yaml").exists() and (tmp_path / "b/config.yaml").exists()


def test_a_dry_run_is_a_run_without_scores(frame, tmp_path):
    run = seqclf.fit(
        make_frame(20), label="label", overrides=[*FAST, "trainer.fast_dev_run=true"], folder=tmp_path / "run"
    )
    assert "not scored" in repr(run) and run.bundle is None
    with pytest.raises(InputError, match=r"metrics\.json: missing"):
        run.metrics  # noqa: B018
    with pytest.raises(InputError, match=r"has no bundle; export one: seqclf export checkpoint="):
        run.predict([["food"]])


@pytest.mark.parametrize(
    ("settings", "unit"), [(["data.split.by=distinct"], "sequence"), (["data.group=card"], "group")]
)
def test_a_guarantee_names_what_is_counted(tmp_path, settings, unit):
    frame = make_frame(60)
    frame = pd.concat([frame, frame])
    settings = [*settings, "decision.min_recall=0.8", "data.positive=fraud", "export=false"]
    run = seqclf.fit(frame, label="label", overrides=[*FAST, *settings], folder=tmp_path / "run")
    assert [target["unit"] for target in run.metrics["decision"]["targets"]] == [unit]
    assert run.predictions["group"].null_count == (len(run.predictions) if unit == "sequence" else 0)
    assert set(run.predictions["split"].unique().to_pylist()) == {"validation"}


@pytest.fixture
def cost(monkeypatch, tmp_path):
    """Settings of the metric of docs/extending.md, whose package is installed."""
    install_package(monkeypatch, tmp_path, "pricepackage", {"metrics.py": documented_example("A metric")})
    return "{_target_: pricepackage.metrics.ExpectedCost, costs: [[0, 1], [9, 0]]}"


def test_a_metric_of_ones_own_chooses_the_epoch_and_is_in_every_file(frame, cost, tmp_path):
    f2 = "{_target_: torchmetrics.classification.BinaryFBetaScore, beta: 2.0, name: f2}"
    own = [f"metrics=[{cost}, {f2}]", "monitor=ExpectedCost", "trainer.max_epochs=4", "data.split.test=0.3"]
    run = seqclf.fit(frame, label="label", overrides=[*FAST, *own], folder=tmp_path / "run")
    rows = run.predictions.to_pandas().query("split == 'test'")
    probabilities = rows[["probability_fair", "probability_fraud"]].to_numpy()
    actions = (probabilities @ np.array([[0, 1], [9, 0]])).argmin(axis=1)
    costs = np.array([[0, 1], [9, 0]])[(rows["label"] == "fraud").astype(int), actions]
    predicted = rows["label"] == "fraud", probabilities[:, 1] > 0.5
    values = {"ExpectedCost": costs.mean(), "f2": fbeta_score(*predicted, beta=2)}
    assert run.metrics["test"]["own"] == pytest.approx(values, abs=1e-6)
    epochs = pd.read_csv(run.folder / "metrics.csv")
    best = torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]
    assert epochs["validation/ExpectedCost"][best] == epochs["validation/ExpectedCost"].min()
    assert all(text in run.report.read_text() for text in ("ExpectedCost", "f2"))


def test_the_code_of_a_metric_is_needed_for_training_alone(frame, cost, tmp_path, monkeypatch):
    overrides = [*FAST, f"metrics=[{cost}]", "monitor=ExpectedCost"]
    run = seqclf.fit(frame, label="label", overrides=overrides, folder=tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "pricepackage.metrics")
    monkeypatch.delitem(sys.modules, "pricepackage")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pricepackage")
    task = load_task(run.folder / "model.ckpt")
    assert task.hparams["metrics"] == [] and task.hparams["monitor"] is None
    recipe = json.loads((run.folder / "bundle" / "manifest.json").read_text())["recipe"]
    assert "metrics" not in recipe and recipe["monitor"] == "loss"
    assert "pricepackage" not in (run.folder / "bundle" / "manifest.json").read_text()
    with pytest.raises(InputError, match=r"^metrics\[0\]\._target_=pricepackage"):
        seqclf.fit(frame, label="label", overrides=overrides, folder=tmp_path / "again")
