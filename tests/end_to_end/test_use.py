"""The trained model at work: predict, evaluate, export."""

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

from seqclf.bundle.manifest import read_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.data.encoding.encoders import encode
from seqclf.models.onnx_export import example_inputs
from seqclf.training.module import load_task

QUICK = ["logger=none", "trainer.max_epochs=1", "model.hidden_size=8", "model.embedding_size=8"]

BAD = {"card": "bad", "shop": ["food"], "amount": [1.0, 2.0], "fraud": "no"}


@pytest.fixture(scope="module")
def rows(shell):
    """The test rows, one that cannot be used in their midst, in `new.parquet` and without labels."""
    found = pq.read_table(shell.here / "test.parquet").to_pylist()
    found.insert(40, BAD)
    pq.write_table(pa.Table.from_pylist(found).drop_columns("fraud"), shell.here / "new.parquet")
    return found


@pytest.fixture(scope="module")
def predicted(shell, trained, rows):
    done = shell("predict", "bundle=logged/bundle", "input=new.parquet", "output=out/scores.parquet")
    assert done.result["rows"] == 91 and done.result["refused"] == 1
    assert done.err == ""
    return pq.read_table(shell.here / "out/scores.parquet").to_pylist()


def test_predictions_are_a_row_per_row_in_order(predicted, rows):
    assert [row["id"] for row in predicted] == [row["card"] for row in rows]
    assert list(predicted[0]) == ["id", "prediction", "probability", "probability_no", "probability_yes", "error"]
    for row in predicted[:40] + predicted[41:]:
        assert row["probability_no"] + row["probability_yes"] == pytest.approx(1)
        assert row["probability"] == max(row["probability_no"], row["probability_yes"])
        assert row["probability"] == row[f"probability_{row['prediction']}"]
    refused = dict(predicted[40])
    assert "amount" in refused.pop("error") and refused.pop("id") == "bad"
    assert set(refused.values()) == {None}


def test_predictions_are_those_of_the_checkpoint(trained, predicted, rows):
    task = load_task(trained.run / "checkpoints/best.ckpt")
    classifier = Classifier(trained.run / "bundle", device="cpu")
    for row, found in zip(rows[:40], predicted, strict=False):
        batch = pa.record_batch({"shop": [row["shop"]], "amount": [row["amount"]]})
        encoded = encode(classifier.encoders, batch, classifier.schema.truncation).sequences.fields
        fields = {name: torch.from_numpy(steps)[None] for name, steps in encoded.items()}
        lengths = np.array([len(row["shop"])])
        with torch.no_grad():
            logits = task.model(fields, torch.from_numpy(lengths), lengths)
        assert found["probability_yes"] == pytest.approx(float(logits[0].softmax(0)[1]), abs=1e-5)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "arrow"])
def test_every_kind_of_output_says_the_same(shell, predicted, kind):
    output = shell.here / f"scores.{kind}"
    assert shell("predict", "bundle=logged/bundle", "input=new.parquet", f"output={output}").result["rows"] == 91
    if kind == "csv":
        with output.open(newline="") as file:
            found = [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    elif kind == "jsonl":
        found = [json.loads(line) for line in output.read_text().splitlines()]
    else:
        found = pa.ipc.open_file(output.read_bytes()).read_all().to_pylist()
    for row, expected in zip(found, predicted, strict=True):
        assert list(row) == list(expected)
        for key, value in expected.items():
            assert row[key] == value if not isinstance(value, float) else float(row[key]) == pytest.approx(value)


@pytest.mark.parametrize("typed", ['{"shop": ["fuel", "jewels"], "amount": [9.5, 700]}'])
def test_one_typed_sequence(shell, trained, typed):
    result = shell("predict", "bundle=logged/bundle", f"sequence={typed}").result
    (expected,) = Classifier(trained.run / "bundle", device="cpu").predict([json.loads(typed)])
    assert result["prediction"] == expected["prediction"]
    assert result["probabilities"] == pytest.approx(expected["probabilities"])


def test_the_bundle_scores_as_the_checkpoint_did(shell, trained):
    arguments = ["bundle=logged/bundle", "data=files", "data.test=test.parquet", "data.label=fraud"]
    result = shell("evaluate", *arguments, "output=scored/test.json").result
    expected = json.loads((trained.run / "metrics.json").read_text())["test"]
    assert result.pop("refused") == 0
    assert set(result) == set(expected)
    assert json.loads((shell.here / "scored/test.json").read_text())["test"] | {"refused": 0} == result | {"refused": 0}
    assert_about(result, expected)


def assert_about(found, expected, where=""):
    """Equal, numbers nearly so."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key, value in expected.items():
            assert_about(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_about(found[place], value, f"{where}[{place}]")
    else:
        assert found == (pytest.approx(expected, abs=1e-5) if isinstance(expected, float) else expected), where


def test_predict_and_evaluate_decide_as_they_are_told(shell, trained, predicted):
    told = ["bundle=logged/bundle", "threshold=0.3"]
    done = shell("predict", *told, "input=new.parquet", "output=out/careful.parquet")
    assert done.result["rows"] == 91
    careful = pq.read_table(shell.here / "out/careful.parquet").to_pylist()
    usual = [row["prediction"] for row in predicted]
    for row, before in zip(careful, usual, strict=True):
        if row["error"] is None:
            assert row["prediction"] == ("yes" if row["probability_yes"] >= 0.3 else "no")
            assert row["probability"] == row[f"probability_{row['prediction']}"]
        else:
            assert before is None
    assert [row["prediction"] for row in careful] != usual
    done = shell("evaluate", *told, "data.test=test.parquet", "data.label=fraud", "report=out/report.html")
    assert done.result["positive"]["alerts"] == sum(row["prediction"] == "yes" for row in careful)
    assert "<h2>Threshold</h2>" in (shell.here / "out/report.html").read_text()
    refused = shell("predict", "bundle=logged/bundle", "threshold=often", "sequence={}")
    assert refused.code == 2 and "error: threshold=often: must be a probability" in refused.err


def test_a_promise_travels_with_the_bundle(shell, files):
    arguments = [*files, "decision.min_recall=0.6", "decision.confidence=0.8", "trainer.max_epochs=2", "logger=none"]
    done = shell("train", *arguments, "hydra.run.dir=promised")
    assert "decision: at least 60.0% of yes found" in done.err
    metrics = json.loads((shell.here / "promised/metrics.json").read_text())
    decision = metrics["decision"]
    (target,) = decision["targets"]
    assert (target["rule"], target["target"], decision["positive"]) == ("min_recall", 0.6, "yes")
    positives = metrics["validation"]["positive"]["rows"]
    assert metrics["holdout"]["rows"] + metrics["validation"]["rows"] == metrics["data"]["validation"]["used"]
    assert abs(target["rows"] - positives) <= 1, "half of the positive rows are kept apart, and not scored"
    assert metrics["validation"]["used_for"] == ["epoch"] and done.result["independent"]
    assert read_manifest(shell.here / "promised/bundle")["decision"] == decision
    result = shell("evaluate", "bundle=promised/bundle", "data.test=test.parquet", "data.label=fraud").result
    assert result["positive"]["recall"] == metrics["test"]["positive"]["recall"]
    shell("export", "checkpoint=promised/checkpoints/best.ckpt", "bundle=promised/again")
    assert read_manifest(shell.here / "promised/again")["decision"] == decision
    # As if the run had been killed after its last epoch, before it was scored.
    (shell.here / "promised/metrics.json").unlink()
    shutil.rmtree(shell.here / "promised/bundle")
    done = shell("export", "checkpoint=promised/checkpoints/best.ckpt", "bundle=unscored")
    assert done.result["decision"] == read_manifest(shell.here / "unscored")["decision"]["rule"] == "argmax"
    assert "the bundle has no decision and chooses the most probable label, not decision.min_recall=0.6" in done.err
    resumed = ["checkpoint=promised/checkpoints/last.ckpt", "hydra.run.dir=promised"]
    assert shell("train", *arguments, *resumed).result["epochs"] == 2
    assert json.loads((shell.here / "promised/metrics.json").read_text()) == metrics
    assert read_manifest(shell.here / "promised/bundle")["decision"] == decision
    refused = shell("train", *arguments, *resumed, "trainer.max_epochs=1")
    assert refused.code == 2 and "has started epoch 2 already; raise trainer.max_epochs (now 1)" in refused.err


def test_validation_rows_that_chose_the_epoch_are_no_independent_result(shell, files):
    alone = [one for one in files if not one.startswith("data.test=")]
    done = shell("train", *alone, "trainer.max_epochs=2", "logger=none", "hydra.run.dir=alone")
    assert (done.result["split"], done.result["independent"]) == ("validation", False)
    assert json.loads((shell.here / "alone/metrics.json").read_text())["validation"]["used_for"] == ["epoch"]
    for text in (
        done.err,
        *((shell.here / "alone" / name).read_text() for name in ("report.html", "bundle/MODEL_CARD.md")),
    ):
        assert "These validation rows also chose the epoch" in " ".join(text.split())


def test_evaluation_refuses_rows_and_counts_them(shell, trained, rows):
    pq.write_table(pa.Table.from_pylist([*rows, rows[0] | {"fraud": "maybe"}]), shell.here / "odd.parquet")
    done = shell("evaluate", "bundle=logged/bundle", "data.test=odd.parquet", "data.label=fraud")
    assert (done.result["refused"], done.result["rows"]) == (2, 90)
    assert "refused 2 of 92 rows; the first: odd.parquet: row 41:" in done.err


def test_a_checkpoint_exports_to_the_bundle_of_its_run(shell, trained):
    result = shell("export", "checkpoint=logged/checkpoints/best.ckpt", "bundle=exported").result
    assert result["parity"] <= 1e-5 and result["cells"] > 30
    first, second = trained.run / "bundle", shell.here / "exported"
    manifests = [read_manifest(folder) for folder in (first, second)]
    for manifest in manifests:
        manifest["metrics"].pop("data", None)
    assert manifests[0] == manifests[1]
    inputs = example_inputs(
        [{"name": "shop", "kind": "category", "size": 5}, {"name": "amount", "kind": "number", "width": 1}],
        np.array([9, 1, 4]),
        9,
        np.random.default_rng(0),
    )
    logits = [onnxruntime.InferenceSession(folder / "model.onnx").run(None, inputs)[0] for folder in (first, second)]
    np.testing.assert_array_equal(*logits)


def test_text_files_are_evaluated_as_they_were_trained_and_booleans_are_labels(shell):
    lines = ["é;ja 1;true", "è;nein 2;false"] * 30
    (shell.here / "latin.csv").write_bytes("\n".join(lines).encode("latin-1"))
    how = ["data.header=false", "data.encoding=latin-1", "data.delimiter=';'", "data.quote=''", "data.positive=true"]
    fields = ["data.label=column2", "data.fields={said: {kind: text, column: column1}}"]
    train = ["data=files", "data.train=latin.csv", *how, *fields, "hydra.run.dir=latin", *QUICK]
    trained = shell("train", *train, "loss.class_weights={true: 2}", "model.members=2").result
    assert (trained["split"], trained["independent"]) == ("validation", trained["epochs"] == 1)
    assert "with 2 bidirectional LSTMs, whose" in (shell.here / "latin/bundle/MODEL_CARD.md").read_text("utf-8")
    kinds = [node.op_type for node in onnx.load(shell.here / "latin/bundle/model.onnx").graph.node]
    assert kinds.count("LSTM") == 2, "one for each member"
    scored = shell("evaluate", "bundle=latin/bundle", "data.test=latin.csv").result
    assert (scored["rows"], scored["refused"], scored["positive"]["label"]) == (60, 0, "true")


def test_a_folder_that_is_used_again_keeps_nothing_of_the_run_before(shell):
    once = ["data=toy", "data.generator.rows.train=200", "hydra.run.dir=twice", *QUICK]
    assert shell("train", *once).result["bundle"]
    again = [*once, "export=false", "trainer.max_steps=2"]
    refused = shell("train", *again)
    assert refused.code == 2 and "twice: holds a run already (metrics.json, " in refused.err
    assert shell("train", *again, "overwrite=true").result["bundle"] is None
    assert not (shell.here / "twice/bundle").exists()


def test_the_bundle_carries_a_model_card(shell, trained):
    card = (trained.run / "bundle/MODEL_CARD.md").read_text(encoding="utf-8")
    test = json.loads((trained.run / "metrics.json").read_text())["test"]
    assert f"Finds {test['positive']['recall']:.1%} of yes (between " in card
    assert f"| this model, test | {test['positive']['recall']:.4f} |" in card
    assert "| train | 192 | 1 | 0 |" in card, "rows used, refused, cut"
    assert "1 of 329 rows repeat an earlier row" in card
    assert "Sequences of more than 13 steps were not scored." in card
    assert "data.label=fraud" in card and "None" not in card
