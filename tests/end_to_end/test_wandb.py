"""Contents of the offline run file of Weights & Biases."""

import csv
import json
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
import yaml
from support.wandb_records import records, run_of


@pytest.fixture(scope="module")
def recorded(trained):
    """The records of the run file of `trained`."""
    (path,) = (trained.run / "wandb").glob("offline-run-*/run-*.wandb")
    return list(records(path))


def value(item):
    return json.loads(item.value_json)


def history(recorded, *names):
    """Return the logged rows that contain all named values."""
    rows = []
    for record in recorded:
        if record.HasField("history"):
            row = {item.key or "/".join(item.nested_key): value(item) for item in record.history.item}
            if all(name in row for name in names):
                rows.append(row)
    return rows


def test_run_without_a_key_is_offline_and_asks_nothing(trained):
    assert "wandb.ai/authorize" not in trained.command.stderr and "API key" not in trained.command.stderr
    assert trained.command.exit_code == 0, "stdin is closed: a prompt would have ended the run"


def test_variables_of_the_environment_are_obeyed(recorded):
    run = run_of(recorded)
    assert (run.project, list(run.tags), run.notes) == ("frauds", ["cards", "small"], "of the environment")


def test_recorded_config_equals_the_config_file(recorded, trained):
    updates = [record.run.config.update for record in recorded if record.HasField("run")]
    updates += [record.config.update for record in recorded if record.HasField("config")]
    recorded_config = {item.key: value(item) for update in updates for item in update if item.key}
    expected = yaml.safe_load((trained.run / "config.yaml").read_text())
    assert {key: recorded_config[key] for key in expected} == expected


@pytest.mark.parametrize(
    "name",
    [
        "train/loss",
        "train/macro_recall",
        "system/step_ms",
        "validation/loss",
        "validation/macro_recall",
        "validation/average_precision",
        "validation/auroc",
    ],
)
def test_curves_are_recorded_by_epoch(recorded, trained, name):
    rows = history(recorded, "epoch", name)
    with (trained.run / "metrics.csv").open(newline="") as file:
        column = name.replace("macro_", "").removeprefix("system/")
        expected = [float(row[column]) for row in csv.DictReader(file)]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row[name] for row in rows] == pytest.approx(expected, rel=1e-6)


def test_each_score_has_one_name_whose_summary_is_that_of_the_exported_model(recorded, trained):
    metrics = json.loads((trained.run / "metrics.json").read_text())
    values = summary(recorded)
    for split in ("train", "validation", "test", "baseline"):
        for name in ("loss", "accuracy", "recall", "precision", "f1"):
            shown = f"{split}/macro_{name}" if name in ("recall", "precision", "f1") else f"{split}/{name}"
            assert values[shown] == pytest.approx(metrics[split][name]), shown
        assert not {f"{split}/recall", f"{split}/positive/recall"} & set(values)
    for split in ("validation", "test", "baseline"):
        positive = metrics[split]["positive"]
        assert values[f"{split}/recall_of_yes"] == pytest.approx(positive["recall"])
        assert values[f"{split}/average_precision"] == pytest.approx(positive["average_precision"])
    assert not [name for name in values if name.startswith(("best/", "final/"))]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_confusion_matrix_is_recorded(recorded, trained, split):
    rows = [row for row in history(recorded) if any(key.startswith(f"{split}/confusion_matrix") for key in row)]
    assert rows
    (path,) = trained.run.glob(f"wandb/offline-run-*/files/media/table/{split}/confusion_matrix_table*.json")
    cells = json.loads(path.read_text())["data"]
    confusion = json.loads((trained.run / "metrics.json").read_text())[split]["confusion"]
    names = ["no", "yes"]
    assert {(actual, predicted): count for actual, predicted, count in cells} == {
        (names[row], names[column]): confusion[row][column] for row in range(2) for column in range(2)
    }


def summary(recorded):
    """Return the last value of each name in the summary."""
    values = {}
    for record in recorded:
        if record.HasField("summary"):
            values |= {item.key: value(item) for item in record.summary.update if item.key}
    return values


def test_run_is_finished_as_a_success(recorded):
    assert [record.exit.exit_code for record in recorded if record.HasField("exit")] == [0]


def test_a_report_without_rows_is_a_panel_and_a_file(recorded, trained):
    report = (trained.run / "shared/report.html").read_bytes()
    ids = pq.read_table(trained.run / "predictions.parquet")["id"].to_pylist()
    assert not any(f">{name}<".encode() in report for name in ids)
    (panel,) = trained.run.glob("wandb/offline-run-*/files/media/html/report_*.html")
    (file,) = trained.run.glob("wandb/offline-run-*/files/report.html")
    assert panel.read_bytes() == file.read_bytes() == report
    saved = {item.path for record in recorded if record.HasField("files") for item in record.files.files}
    assert {"report.html", "metrics.json", panel.relative_to(file.parent).as_posix()} <= saved


def test_the_model_is_an_artifact_with_the_digest_of_the_data(recorded, trained):
    artifacts = {record.artifact.type: record.artifact for record in recorded if record.HasField("artifact")}
    digest = json.loads((trained.run / "bundle/manifest.json").read_text())["data"]["digest"]
    assert json.loads(artifacts["model"].metadata)["dataset"] == digest


def table(trained, name):
    """Return the rows of a logged table as dictionaries."""
    (path,) = trained.run.glob(f"wandb/offline-run-*/files/media/table/test/{name}*.json")
    content = json.loads(path.read_text())
    return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]


def test_curves_agree_with_metrics_json(trained):
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    curve = table(trained, "precision_recall")
    assert all(0 <= row["recall of yes"] <= 1 and 0 <= row["precision"] <= 1 for row in curve) and len(curve) > 5
    roc = [(row["false alert rate"], row["recall of yes"]) for row in table(trained, "roc_table")]
    assert roc == sorted(roc) and (roc[0], roc[-1]) == ((0, 0), (1, 1))
    area = sum((x - x0) * (y + y0) / 2 for (x0, y0), (x, y) in pairwise(roc))
    assert area == pytest.approx(test["positive"]["auroc"], abs=1e-6)


@pytest.mark.slow
def test_a_run_that_branches_has_its_own_id_and_names_its_parent(shell, files, trained, recorded):
    arguments = [*files, "trainer.max_epochs=5", "checkpoint=logged/checkpoints/last.ckpt", "logger.tags=[more]"]
    completed = shell("train", *arguments, "hydra.run.dir=resumed_logged", "export=false")
    assert completed.result["epochs"] == 5
    (path,) = (shell.folder / "resumed_logged/wandb").glob("offline-run-*/run-*.wandb")
    resumed = run_of(list(records(path)))
    parent = next(value(item) for item in resumed.config.update if item.key == "parent_run")
    assert resumed.run_id != run_of(recorded).run_id == parent
    assert (resumed.job_type, list(resumed.tags)) == ("train", ["more"])


@pytest.mark.slow
def test_runs_of_a_sweep_share_a_group_and_no_id(shell, files):
    arguments = ["-m", *files, "trainer.max_epochs=1", "seed=0,1", "hydra.sweep.dir=sweeps/two", "export=false"]
    assert shell("train", *arguments, WANDB_RUN_ID="given").exit_code == 0
    runs = [run_of(list(records(path))) for path in (shell.folder / "sweeps/two").glob("*/wandb/*run-*/run-*.wandb")]
    assert [run.run_group for run in runs] == ["two", "two"]
    assert len({run.run_id for run in runs}) == 2
