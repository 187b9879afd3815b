"""Using a trained model: predict, evaluate, export."""

import csv
import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from seqclf.bundle.manifest import read_bundle
from seqclf.bundle.runtime import Classifier
from seqclf.data.encoding.encoders import encode
from seqclf.models.onnx.exporter import example_inputs
from seqclf.training.task import load_task

QUICK = ["logger=none", "trainer.max_epochs=1", "model.hidden_size=8", "model.embedding_size=8"]

INVALID_ROW = {"card": "bad", "shop": ["food"], "amount": [1.0, 2.0], "fraud": "no"}


@pytest.fixture(scope="module")
def rows(shell):
    """The test rows with an invalid row at position 40. `new.parquet` holds them without labels."""
    rows = pq.read_table(shell.folder / "test.parquet").to_pylist()
    rows.insert(40, INVALID_ROW)
    pq.write_table(pa.Table.from_pylist(rows).drop_columns("fraud"), shell.folder / "new.parquet")
    return rows


@pytest.fixture(scope="module")
def predicted(shell, trained, rows):
    """The predictions of `rows` by the command."""
    command = ["-m", "seqclf.predict", "bundle=logged/bundle", "input=new.parquet", "output=out/scores.parquet"]
    completed = shell.start(*command)()
    assert completed.result["rows"] == 91 and completed.result["refused"] == 1
    assert completed.stderr == ""
    return pq.read_table(shell.folder / "out/scores.parquet").to_pylist()


def test_every_row_gets_one_prediction_in_input_order(predicted, rows):
    assert [row["id"] for row in predicted] == [row["card"] for row in rows]
    names = ["id", "prediction", "probability", "probability_no", "probability_yes", "unknown", "far", "error"]
    assert list(predicted[0]) == names
    for row in predicted[:40] + predicted[41:]:
        assert row["probability_no"] + row["probability_yes"] == pytest.approx(1)
        assert row["probability"] == max(row["probability_no"], row["probability_yes"])
        assert row["probability"] == row[f"probability_{row['prediction']}"]
    refused = dict(predicted[40])
    assert "amount" in refused.pop("error") and refused.pop("id") == "bad"
    assert set(refused.values()) == {None}


def test_predictions_match_the_checkpoint(trained, predicted, rows):
    task = load_task(trained.run / "model.ckpt")
    classifier = Classifier(trained.run / "bundle", device="cpu")
    for row, prediction in zip(rows[:40], predicted, strict=False):
        batch = pa.record_batch({"shop": [row["shop"]], "amount": [row["amount"]]})
        encoded = encode(classifier.encoders, batch, classifier.schema.truncation).sequences.fields
        fields = {name: torch.from_numpy(tokens)[None] for name, tokens in encoded.items()}
        lengths = np.array([len(row["shop"])])
        with torch.no_grad():
            logits = task.model(fields, torch.from_numpy(lengths), lengths)
        assert prediction["probability_yes"] == pytest.approx(float(logits[0].softmax(0)[1]), abs=1e-5)


def test_a_csv_file_holds_the_same_predictions(shell, predicted):
    output = shell.folder / "scores.csv"
    assert shell("predict", "bundle=logged/bundle", "input=new.parquet", f"output={output}").result["rows"] == 91
    with output.open(newline="") as file:
        written = [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    for row, expected in zip(written, predicted, strict=True):
        assert list(row) == list(expected)
        for key, value in expected.items():
            assert row[key] == value if not isinstance(value, float) else float(row[key]) == pytest.approx(value)


def test_single_sequence_is_predicted_as_by_the_classifier(shell, trained):
    sequence = '{"shop": ["fuel", "jewels"], "amount": [9.5, 700]}'
    result = shell("predict", "bundle=logged/bundle", f"sequence={sequence}").result
    (expected,) = Classifier(trained.run / "bundle", device="cpu").predict([json.loads(sequence)])
    assert result["prediction"] == expected["prediction"]
    assert result["probabilities"] == pytest.approx(expected["probabilities"])


def test_an_explained_file_has_a_row_per_token(shell, trained, rows):
    command = ["predict", "bundle=logged/bundle", "input=new.parquet", "explain=true"]
    completed = shell(*command, "output=out/tokens.parquet")
    tokens = sum(len(row["shop"]) for row in rows if row is not INVALID_ROW)
    result = completed.result
    assert (result["rows"], result["refused"], result["tokens"]) == (91, 1, tokens)
    written = pq.read_table(shell.folder / "out/tokens.parquet").to_pylist()
    expected = [row["card"] for row in rows for _ in (["?"] if row is INVALID_ROW else row["shop"])]
    assert [row["id"] for row in written] == expected
    assert [row["token"] for row in written if row["error"]] == [None]
    assert list(written[0]) == [
        "id", "prediction", "probability", "position", "token", "contribution", "contribution_shop",
        "contribution_amount", "error",
    ]  # fmt: skip
    shell(*command[:-1], "explain=tokens", "output=out/tokens.csv")
    with (shell.folder / "out/tokens.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == tokens + 1 and "contribution_shop" not in lines[0]


def test_a_single_sequence_is_explained_on_the_terminal_and_as_json(shell, trained):
    sequence = '{"shop": ["fuel", "jewels"], "amount": [9.5, 700]}'
    completed = shell("predict", "bundle=logged/bundle", f"sequence={sequence}", "explain=true")
    expected = Classifier(trained.run / "bundle", device="cpu").explain(json.loads(sequence))
    assert completed.result["tokens"] == expected["tokens"] == ["fuel 9.5", "jewels 700"]
    assert completed.result["contributions"] == pytest.approx(expected["contributions"], abs=1e-5)
    assert list(completed.result["contributions_by_field"]) == ["shop", "amount"]
    for token, value in zip(expected["tokens"], expected["contributions"], strict=True):
        (line,) = [line for line in completed.stderr.splitlines() if token in line]
        assert f"{value:+.3f}" in line and "│" in line and "shop" in line


def test_evaluating_the_bundle_reproduces_the_test_metrics(shell, trained):
    arguments = ["bundle=logged/bundle", "data=files", "data.test=test.parquet", "data.label=fraud"]
    result = shell("evaluate", *arguments, "output=scored").result
    expected = json.loads((trained.run / "metrics.json").read_text())["test"]
    written = json.loads((shell.folder / "scored/metrics.json").read_text())
    assert result["refused"] == written["unknown_labels"] == 0
    assert result["provider"] in onnxruntime.get_available_providers()
    result = {key: value for key, value in result.items() if key in written["test"]}
    assert result == written["test"]
    # A bundle holds no order-blind baseline to compare with.
    expected["alarms"] = [alarm for alarm in expected["alarms"] if alarm["kind"] != "not_better_than_baseline"]
    assert set(result) == set(expected)
    assert_close(result, expected)


def assert_close(actual, expected, path=""):
    """Assert that nested values are equal, floats up to 1e-5. `path` names the place of a difference."""
    if isinstance(expected, dict):
        assert set(actual) == set(expected), path
        for key, value in expected.items():
            assert_close(actual[key], value, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), path
        for index, value in enumerate(expected):
            assert_close(actual[index], value, f"{path}[{index}]")
    else:
        assert actual == (pytest.approx(expected, abs=1e-5) if isinstance(expected, float) else expected), path


def test_predict_and_evaluate_apply_the_threshold_option(shell, trained, predicted):
    options = ["bundle=logged/bundle", "threshold=0.3"]
    completed = shell("predict", *options, "input=new.parquet", "output=out/careful.parquet")
    assert completed.result["rows"] == 91
    careful = pq.read_table(shell.folder / "out/careful.parquet").to_pylist()
    default_labels = [row["prediction"] for row in predicted]
    for row, default_label in zip(careful, default_labels, strict=True):
        if row["error"] is None:
            assert row["prediction"] == ("yes" if row["probability_yes"] >= 0.3 else "no")
            assert row["probability"] == row[f"probability_{row['prediction']}"]
        else:
            assert default_label is None
    assert [row["prediction"] for row in careful] != default_labels
    completed = shell("evaluate", *options, "data.test=test.parquet", "data.label=fraud", "output=out/scored")
    assert completed.result["positive"]["alerts"] == sum(row["prediction"] == "yes" for row in careful)
    page = (shell.folder / "out/scored/report.html").read_text()
    assert "<h2>Threshold</h2>" in page
    assert ("<dt>predicted as</dt>" in page) == ('class="supports"' in page), "errors are explained"
    refused = shell("predict", "bundle=logged/bundle", "threshold=often", "sequence={}")
    assert refused.exit_code == 2 and "error: threshold=often: must be a probability" in refused.stderr


@pytest.mark.slow
def test_guarantee_is_carried_by_bundle_export_and_resumed_run(shell, files):
    arguments = [*files, "decision.min_recall=0.6", "decision.confidence=0.8", "trainer.max_epochs=2", "logger=none"]
    completed = shell("train", *arguments, "hydra.run.dir=guaranteed")
    assert "at least 60.0% of yes found" in completed.stderr
    metrics = json.loads((shell.folder / "guaranteed/metrics.json").read_text())
    decision = metrics["decision"]
    (target,) = decision["targets"]
    assert (target["rule"], target["target"], decision["positive"]) == ("min_recall", 0.6, "yes")
    positives = metrics["validation"]["positive"]["rows"]
    assert metrics["holdout"]["rows"] == 0 and metrics["validation"]["rows"] == metrics["data"]["validation"]["used"]
    assert target["rows"] == positives, "all positive rows set the threshold"
    assert (
        metrics["validation"]["used_for"] == ["weights of the heads", "threshold"] and completed.result["independent"]
    )
    assert read_bundle(shell.folder / "guaranteed/bundle")[0]["decision"] == decision
    test = ["data.test=test.parquet", "data.label=fraud", "output=guaranteed_evaluation"]
    result = shell("evaluate", "bundle=guaranteed/bundle", *test).result
    assert result["positive"]["recall"] == metrics["test"]["positive"]["recall"]
    shell("export", "checkpoint=guaranteed/model.ckpt", "bundle=guaranteed/again")
    assert read_bundle(shell.folder / "guaranteed/again")[0]["decision"] == decision
    # Simulate a run that was killed between its last epoch and its evaluation.
    (shell.folder / "guaranteed/metrics.json").unlink()
    shutil.rmtree(shell.folder / "guaranteed/bundle")
    completed = shell("export", "checkpoint=guaranteed/model.ckpt", "bundle=not_scored")
    assert completed.result["decision"] == read_bundle(shell.folder / "not_scored")[0]["decision"]["rule"] == "argmax"
    assert (
        "the bundle has no decision and chooses the most probable label, not decision.min_recall=0.6"
        in completed.stderr
    )
    resumed = ["checkpoint=guaranteed/checkpoints/last.ckpt", "hydra.run.dir=guaranteed"]
    assert shell("train", *arguments, *resumed).result["epochs"] == 2
    assert json.loads((shell.folder / "guaranteed/metrics.json").read_text()) == metrics
    assert read_bundle(shell.folder / "guaranteed/bundle")[0]["decision"] == decision
    refused = shell("train", *arguments, *resumed, "trainer.max_epochs=1")
    assert refused.exit_code == 2 and "has started epoch 2 already; raise trainer.max_epochs (now 1)" in refused.stderr


@pytest.mark.slow
def test_validation_rows_that_selected_the_epoch_are_reported_as_not_independent(shell, files):
    without_test = [argument for argument in files if not argument.startswith("data.test=")]
    completed = shell(
        "train", *without_test, "trainer.max_epochs=2", "monitor=recall", "logger=none", "hydra.run.dir=without_test"
    )
    assert (completed.result["split"], completed.result["independent"]) == ("validation", False)
    metrics = json.loads((shell.folder / "without_test/metrics.json").read_text())
    assert metrics["validation"]["used_for"] == ["epoch", "weights of the heads"]
    for text in (
        completed.stderr,
        *((shell.folder / "without_test" / name).read_text() for name in ("report.html", "bundle/MODEL_CARD.md")),
    ):
        assert "the validation rows that judge it also chose its epoch" in " ".join(text.split())


def test_evaluation_counts_refused_rows(shell, trained, rows):
    pq.write_table(pa.Table.from_pylist([*rows, rows[0] | {"fraud": "maybe"}]), shell.folder / "odd.parquet")
    completed = shell("evaluate", "bundle=logged/bundle", "data.test=odd.parquet", "data.label=fraud", "output=odd")
    assert (completed.result["refused"], completed.result["rows"]) == (2, 90)
    assert "refused 2 of 92 rows; the first: odd.parquet: row 41:" in completed.stderr


@pytest.mark.slow
def test_exported_checkpoint_equals_the_bundle_of_its_run(shell, trained):
    result = shell.start("-m", "seqclf.export", "checkpoint=logged/model.ckpt", "bundle=exported")().result
    assert result["parity"] <= 1e-5 and result["cells"] > 30
    first, second = trained.run / "bundle", shell.folder / "exported"
    manifests = [read_bundle(folder)[0] for folder in (first, second)]
    for manifest in manifests:
        manifest["metrics"].pop("data", None)
        for name in ("recipe", "reference", "digest"):  # of the run, which a checkpoint does not hold
            manifest.pop(name, None)
    assert manifests[0] == manifests[1]
    inputs = example_inputs(
        [{"name": "shop", "kind": "category", "size": 5}, {"name": "amount", "kind": "number", "width": 1}],
        np.array([9, 1, 4]),
        9,
        np.random.default_rng(0),
    )
    logits = [onnxruntime.InferenceSession(folder / "model.onnx").run(None, inputs)[0] for folder in (first, second)]
    np.testing.assert_array_equal(*logits)


@pytest.mark.slow
def test_evaluation_reads_text_files_with_the_settings_of_training_and_boolean_labels(shell):
    lines = ["é;ja 1;true", "è;nein 2;false"] * 30
    (shell.folder / "latin.csv").write_bytes("\n".join(lines).encode("latin-1"))
    reading = [
        "data.header=false",
        "data.encoding=latin-1",
        "data.delimiter=';'",
        "data.quote=''",
        "data.positive=true",
    ]
    fields = ["data.label=column2", "data.fields={said: {kind: text, column: column1}}", "data.infer=false"]
    train = ["data=files", "data.train=latin.csv", *reading, *fields, "hydra.run.dir=latin", *QUICK]
    trained = shell("train", *train, "loss.class_weights={true: 2}", "model.members=2").result
    assert (trained["split"], trained["independent"]) == ("validation", False)
    assert "with 2 networks (bidirectional LSTM + " in (shell.folder / "latin/bundle/MODEL_CARD.md").read_text("utf-8")
    operators = [node.op_type for node in onnx.load(shell.folder / "latin/bundle/model.onnx").graph.node]
    assert operators.count("LSTM") == 2, "one for each ensemble member"
    scored = shell("evaluate", "bundle=latin/bundle", "data.test=latin.csv", "output=latin_evaluation").result
    assert (scored["rows"], scored["refused"], scored["positive"]["label"]) == (60, 0, "true")


@pytest.mark.slow
def test_overwriting_a_run_folder_deletes_the_outputs_of_the_earlier_run(shell):
    arguments = ["data=toy", "data.generator.rows.train=200", "hydra.run.dir=twice", *QUICK]
    assert shell("train", *arguments).result["bundle"]
    again = [*arguments, "export=false", "trainer.max_steps=2"]
    refused = shell("train", *again)
    assert refused.exit_code == 2 and "twice: holds a run already (model.ckpt, " in refused.stderr
    assert shell("train", *again, "overwrite=true").result["bundle"] is None
    assert not (shell.folder / "twice/bundle").exists()


def test_bundle_contains_a_model_card(shell, trained):
    card = (trained.run / "bundle/MODEL_CARD.md").read_text(encoding="utf-8")
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    assert "Of 100 sequences labelled yes it finds " in card and "at the threshold " in card
    assert "| this model, test | between |" in card and f"| recall of yes | {test['positive']['recall']:.4f} |" in card
    assert "| train | 192 | 1 | 0 |" in card, "rows used, refused, truncated"
    assert "1 of 329 rows repeats an earlier row" in card
    assert "Sequences of more than 13 tokens were not evaluated." in card
    assert "data.label=fraud" in card and "None" not in card
