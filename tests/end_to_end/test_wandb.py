"""Contents of the offline run file of Weights & Biases."""

import csv
import json
import struct

import pytest
import yaml
from wandb.proto.wandb_internal_pb2 import Record

HEADER, BLOCK = 7, 32768


def records(path):
    """Yield the protocol buffers in a `.wandb` file.

    The file is a LevelDB log: blocks of 32 KiB, in which a record has one or more parts. No part crosses a block.
    """
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, content = HEADER, b""
    while position + HEADER <= len(data):
        remaining = BLOCK - position % BLOCK
        if remaining < HEADER:  # padding: a header does not fit any more
            position += remaining
            continue
        _, length, part = struct.unpack("<IHB", data[position : position + HEADER])
        content += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if part in (1, 4):  # a full record, or the last part of one
            record = Record()
            record.ParseFromString(content)
            yield record
            content = b""


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
        "train/recall",
        "system/step_ms",
        "validation/loss",
        "validation/recall",
        "validation/average_precision",
        "validation/auroc",
    ],
)
def test_curves_are_recorded_by_epoch(recorded, trained, name):
    rows = history(recorded, "epoch", name)
    with (trained.run / "metrics.csv").open(newline="") as file:
        expected = [float(row.get(name) or row[name.removeprefix("system/")]) for row in csv.DictReader(file)]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row[name] for row in rows] == pytest.approx(expected, rel=1e-6)


def test_summary_holds_the_best_value_of_each_validation_metric(recorded):
    summaries = {}
    for record in recorded:
        if record.HasField("metric") and record.metric.name.startswith("validation/"):
            summaries[record.metric.name] = (record.metric.summary.min, record.metric.summary.max)
    assert summaries.pop("validation/loss") == (True, False), "minimum, not maximum"
    names = ("accuracy", "recall", "precision", "f1", "average_precision", "auroc")
    assert summaries == {f"validation/{name}": (False, True) for name in names}


def test_loss_of_every_fifth_step_is_recorded(recorded, trained):
    rows = history(recorded, "train/step_loss", "lr", "trainer/global_step")
    with (trained.run / "metrics.csv").open(newline="") as file:
        last_step = int(list(csv.DictReader(file))[-1]["step"])
    assert [row["trainer/global_step"] for row in rows] == list(range(5, last_step + 1, 5)) and len(rows) > 1
    assert all(0 < row["train/step_loss"] < 5 and row["lr"] >= 0 for row in rows)


def test_recall_of_each_class_is_recorded(recorded):
    rows = history(recorded, "validation/recall/no", "validation/recall/yes", "validation/recall")
    assert len(rows) == 4
    for row in rows:
        mean = (row["validation/recall/no"] + row["validation/recall/yes"]) / 2
        assert row["validation/recall"] == pytest.approx(mean, rel=1e-5)


def test_confusion_matrix_is_recorded(recorded, trained):
    rows = [row for row in history(recorded) if any(key.startswith("test/confusion_matrix") for key in row)]
    assert rows
    (path,) = trained.run.glob("wandb/offline-run-*/files/media/table/test/confusion_matrix_table*.json")
    cells = json.loads(path.read_text())["data"]
    confusion = json.loads((trained.run / "metrics.json").read_text())["test"]["confusion"]
    names = ["no", "yes"]
    assert {(actual, predicted): count for actual, predicted, count in cells} == {
        (names[row], names[column]): confusion[row][column] for row in range(2) for column in range(2)
    }


def test_test_metrics_are_in_the_summary_and_the_run_is_finished(recorded, trained):
    summary = {}
    for record in recorded:
        if record.HasField("summary"):
            summary |= {item.key: value(item) for item in record.summary.update if item.key}
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    assert summary["best/test/recall"] == pytest.approx(test["recall"])
    assert summary["best/test/positive/recall"] == pytest.approx(test["positive"]["recall"])
    assert any(record.HasField("exit") for record in recorded), "the run was finished"


def test_dataset_and_model_are_artifacts_with_the_digest_of_the_data(recorded, trained):
    artifacts = {record.artifact.type: record.artifact for record in recorded if record.HasField("artifact")}
    assert set(artifacts) >= {"dataset", "model"}
    digest = json.loads((trained.run / "bundle/manifest.json").read_text())["data"]["digest"]
    assert json.loads(artifacts["dataset"].metadata)["digest"] == digest
    assert json.loads(artifacts["model"].metadata)["dataset"] == digest


def table(trained, name):
    """Return the rows of a logged table as dictionaries."""
    (path,) = trained.run.glob(f"wandb/offline-run-*/files/media/table/test/{name}*.json")
    content = json.loads(path.read_text())
    return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]


def test_tables_agree_with_metrics_json(trained):
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    for row in table(trained, "by_class"):
        assert row["recall"] == pytest.approx(test["recall_by_class"][row["class"]])
        assert row["support"] == test["support_by_class"][row["class"]]
    assert [(row["low"], row["high"]) for row in table(trained, "by_length")] == [
        (part["low"], part["high"]) for part in test["by_length"]
    ]
    curve = table(trained, "precision_recall")
    assert all(0 <= row["recall"] <= 1 and 0 <= row["precision"] <= 1 for row in curve) and len(curve) > 5
    mistakes = table(trained, "predictions")
    assert all(row["label"] != row["predicted"] for row in mistakes)
    assert len(mistakes) == min(20, test["rows"] - round(test["accuracy"] * test["rows"]))


def test_test_metrics_are_logged_together(recorded, trained):
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    (row,) = history(recorded, "test/recall", "test/positive/average_precision")
    assert row["test/recall"] == pytest.approx(test["recall"])


def run_of(recorded):
    return next(record.run for record in recorded if record.HasField("run"))


@pytest.mark.slow
def test_resumed_run_keeps_its_id(shell, files, trained, recorded):
    arguments = [*files, "trainer.max_epochs=5", "checkpoint=logged/checkpoints/last.ckpt", "logger.tags=[more]"]
    completed = shell("train", *arguments, "hydra.run.dir=resumed_logged", "export=false")
    assert completed.result["epochs"] == 5
    (path,) = (shell.folder / "resumed_logged/wandb").glob("offline-run-*/run-*.wandb")
    resumed = run_of(list(records(path)))
    assert resumed.run_id == run_of(recorded).run_id
    assert (resumed.job_type, list(resumed.tags)) == ("train", ["more"])


@pytest.mark.slow
def test_runs_of_a_sweep_share_a_group(shell, files):
    arguments = ["-m", *files, "trainer.max_epochs=1", "seed=0,1", "hydra.sweep.dir=sweeps/two", "export=false"]
    assert shell("train", *arguments).exit_code == 0
    runs = [run_of(list(records(path))) for path in (shell.folder / "sweeps/two").glob("*/wandb/*run-*/run-*.wandb")]
    assert [run.run_group for run in runs] == ["two", "two"]
    assert len({run.run_id for run in runs}) == 2
