"""MLflow: what its store holds after a run, and servers that fail."""

import re
import socket
import time

import pytest
from mlflow.tracking import MlflowClient
from pydantic import ValidationError

from seqclf.training.loggers.lightning_run import mlflow_key
from seqclf.training.loggers.run_logger import open_logger

CONFIG = {"model": {"hidden_size": 8, "cell": "gru"}, "data": {"fields": {"a/b (c)": "number"}}, "seed": 0}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    return f"file:{tmp_path}/store"


def read_run(store):
    client = MlflowClient(store)
    (experiment,) = [entry for entry in client.search_experiments() if entry.name != "Default"]
    (run,) = client.search_runs([experiment.experiment_id])
    return client, experiment, run


@pytest.fixture
def logged(store, settings, finished):
    logger = open_logger(settings("logger=mlflow", "logger.tags={owner: risk}"), finished.folder, CONFIG)
    for epoch, recall in enumerate((0.5, 0.75)):
        logger.curves.log_metrics({"validation/recall": recall, "validation/recall/so, so": 0.25}, step=10 * epoch)
    logger.curves.finalize("success")  # as Lightning does before the result is known
    logger.log_result(finished)
    logger.close(failed=False)
    return read_run(store)


def test_store_holds_parameters_curves_scores_and_files(logged, finished):
    client, experiment, run = logged
    assert (experiment.name, run.info.status) == ("seqclf", "FINISHED")
    assert run.data.params["model.hidden_size"] == "8" and "a/b (c)" in run.data.params["data.fields"]
    curve = client.get_metric_history(run.info.run_id, "validation/macro_recall")
    assert [(point.step, point.value) for point in curve] == [(0, 0.5), (10, 0.75)]
    assert run.data.metrics["validation/recall_of_so_2c_ so"] == 0.25
    metrics = finished.result.splits
    assert run.data.metrics["test/macro_recall"] == metrics["test"].recall
    assert run.data.metrics["final/validation/recall_of_yes"] == metrics["validation"].positive.recall
    assert run.data.metrics["baseline/average_precision"] == finished.result.baseline.positive.average_precision
    assert run.data.tags["owner"] == "risk" and run.data.tags["dataset.digest"] == "d1gest"
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"report.html", "metrics.json", "bundle"}


def test_a_resumed_run_continues_the_curves_of_its_run(logged, store, settings, finished):
    config = {**CONFIG, "checkpoint": str(finished.folder / "checkpoints/last.ckpt")}
    logger = open_logger(settings("logger=mlflow"), finished.folder, config)
    logger.curves.log_metrics({"validation/recall": 0.875}, step=20)
    logger.close(failed=False)
    client, _, run = read_run(store)
    curve = client.get_metric_history(run.info.run_id, "validation/macro_recall")
    assert [(point.step, point.value) for point in curve] == [(0, 0.5), (10, 0.75), (20, 0.875)]
    assert run.info.run_id == logged[2].info.run_id and run.info.status == "FINISHED"


def test_a_branch_is_a_run_of_its_own_below_its_parent(logged, store, settings, finished, tmp_path):
    config = {**CONFIG, "checkpoint": str(finished.folder / "checkpoints/last.ckpt")}
    (tmp_path / "branch").mkdir()
    logger = open_logger(settings("logger=mlflow"), tmp_path / "branch", config)
    logger.close(failed=False)
    run = MlflowClient(store).get_run(logger.curves.run_id)
    assert run.info.run_id != logged[2].info.run_id == run.data.tags["mlflow.parentRunId"]


def test_a_run_that_fails_is_marked_as_failed(store, settings, tmp_path):
    logger = open_logger(settings("logger=mlflow", "logger.experiment_name=mine"), tmp_path, CONFIG)
    logger.close(failed=True)
    _, experiment, run = read_run(store)
    assert (experiment.name, run.info.status) == ("mine", "FAILED")


@pytest.mark.parametrize("recovers", [True, False])
def test_an_error_during_the_run_ends_the_logging_with_one_warning(recovers, store, settings, finished, monkeypatch):
    logger = open_logger(settings("logger=mlflow"), finished.folder, CONFIG)

    def fail(*arguments, **options):
        raise ConnectionError("the server is gone\nand more")

    for name in ("log_batch", "log_artifact", "set_terminated")[: 2 if recovers else 3]:
        monkeypatch.setattr(MlflowClient, name, fail)
    with pytest.warns(UserWarning, match="^MLflow: the server is gone; the run goes on without it$") as warned:
        for step in range(3):
            logger.curves.log_metrics({"train/step_loss": 1.0}, step)
        logger.log_result(finished)
        logger.close(failed=False)
    assert len(warned) == 1 and read_run(store)[2].info.status == ("FINISHED" if recovers else "RUNNING")


def test_a_server_that_hangs_is_given_up_at_the_start(settings, tmp_path, monkeypatch):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        start = time.monotonic()
        message = f"MLflow: {address} does not answer; the run goes on without it"
        with pytest.warns(UserWarning, match=re.escape(message)):
            assert open_logger(settings("logger=mlflow", "logger.timeout=1"), tmp_path, CONFIG) is None
        assert time.monotonic() - start < 4


def test_keys_are_accepted_by_mlflow():
    for label in ("a/b", "../x", "é", "//", "50 %", "x" * 400):
        assert re.fullmatch(r"validation/recall_of_[a-zA-Z0-9_. -]+", mlflow_key(f"validation/recall_of_{label}"))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:word@host/runs",
        "mysql+pymysql://me:wo/rd#@host/db",
        "https://host/mlflow?api_key=word",
        "https://word@host",
        "mysql://h/db?passwd=x",
    ],
)
def test_an_address_with_a_password_is_refused_because_it_would_be_stored(settings, address):
    with pytest.raises(ValidationError, match="holds credentials; set it in the environment: MLFLOW_TRACKING_URI"):
        settings("logger=mlflow", f"logger.tracking_uri='{address}'")
