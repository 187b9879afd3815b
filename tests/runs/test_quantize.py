"""export precision=int8: quantized LSTM layers, judged by the rows of the run, with a threshold of their own."""

import json

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import numpy_helper
from support.noisy_rows import noisy_rows

import seqclf
from seqclf import Classifier, InputError
from seqclf.bundle.manifest import MODEL, NAME
from seqclf.runs import quantize
from seqclf.runs.export import write_bundle
from seqclf.training.module import load_task

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=16", "model.embedding_size=8"]
SETTINGS += ["optimizer.lr=1e-2", "data.split.validation=0.4", "trainer.max_epochs=2", "baseline=false"]
SETTINGS += ["batching.max_sequences=16", "data.id=id", "data.positive=yes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quantize")


def train(folder, name, *overrides):
    settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", *overrides]
    return seqclf.fit(
        noisy_rows(300, 0), label="label", test=noisy_rows(100, 1), overrides=settings, folder=folder / name
    ).folder


@pytest.fixture(scope="module")
def run(folder):
    return train(folder, "run", "model=lstm", "model.bidirectional=false", "decision.min_recall=0.7")


def export(run, bundle, max_loss=0.05):
    """Export a run in int8. Return what it loses."""
    convert = quantize.Int8(run, max_loss)
    task = load_task(run / "checkpoints" / "best.ckpt")
    write_bundle(task, bundle, json.loads((run / "metrics.json").read_text()), convert=convert)
    return convert.lost


@pytest.fixture(scope="module")
def quantized(run, folder):
    return export(run, folder / "int8"), folder / "int8"


def manifest(bundle):
    return json.loads((bundle / NAME).read_text())


def test_the_lstm_layers_of_both_graphs_are_quantized(run, quantized):
    for name in (MODEL, "step.onnx"):
        nodes = [node.op_type for node in onnx.load(quantized[1] / name).graph.node]
        assert "DynamicQuantizeLSTM" in nodes and "LSTM" not in nodes
        assert (quantized[1] / name).stat().st_size < (run / "bundle" / name).stat().st_size
    weights = [numpy_helper.to_array(each) for each in onnx.load(quantized[1] / MODEL).graph.initializer]
    small = [each for each in weights if each.dtype == np.int8]
    assert small and all(np.abs(each.astype(int)).max() <= 64 for each in small), "products fit into 16 bits"


def test_the_threshold_is_set_by_the_quantized_scores(run, quantized):
    lost, bundle = quantized
    before, after = manifest(run / "bundle"), manifest(bundle)
    assert after["decision"]["threshold"] != before["decision"]["threshold"]
    assert after["decision"]["targets"][0]["rows"] == before["decision"]["targets"][0]["rows"]
    assert "train" not in after["metrics"] and "train" in before["metrics"]
    predicted = Classifier(bundle).predict(noisy_rows(100, 1).drop_columns(["label"]))
    labels = noisy_rows(100, 1)["label"].to_pylist()
    found = predicted["prediction"].to_pylist()
    right = np.mean([one == other for one, other in zip(found, labels, strict=True)])
    assert after["metrics"]["test"]["accuracy"] == pytest.approx(right)
    assert lost == after["precision"]["lost"] and set(lost) == set(quantize.LOST)


def test_what_is_lost_is_that_of_validation(run, quantized):
    before, after = manifest(run / "bundle")["metrics"], manifest(quantized[1])["metrics"]
    lost = manifest(quantized[1])["precision"]["lost"]
    for name in ("accuracy", "recall"):
        assert lost[name] == pytest.approx(before["validation"][name] - after["validation"][name], abs=1e-6)


def test_a_bundle_in_int8_is_sound_within_the_difference_of_its_export(quantized, tmp_path):
    checks = {check.name: check for check in Classifier(quantized[1]).check().checks}
    assert all(check.passed is not False for check in checks.values()), checks
    allowed = manifest(quantized[1])["precision"]["tolerance"]
    assert 1e-5 < checks["same logits"].figure < allowed < 0.5
    assert "int8" in (quantized[1] / "MODEL_CARD.md").read_text()


def test_a_loss_beyond_the_limit_leaves_no_bundle(run, folder, monkeypatch):
    def spoil(path, limit):
        quantize_lstm(path, limit)
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.INT8:
                tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))
        onnx.save(model, path)

    quantize_lstm = quantize._quantize
    monkeypatch.setattr(quantize, "_quantize", spoil)
    with pytest.raises(InputError, match=r"precision=int8: loses .* points of .*, more than max_loss=0.05"):
        export(run, folder / "spoilt")
    assert not (folder / "spoilt").exists()
    export(run, folder / "spoilt", max_loss=1.0)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["model=transformer"], "has no LSTM layer"),
        (["model=adaptive"], "the model stops early"),
    ],
)
def test_runs_that_cannot_be_quantized_are_one_line(folder, overrides, problem):
    run = train(folder, overrides[-1], *overrides, "trainer.max_epochs=1", "export=false")
    with pytest.raises(InputError, match=problem):
        export(run, folder / "refused")


def test_other_data_than_that_of_the_run_is_refused(run, folder, monkeypatch):
    """The labels are equal, and the tokens are others."""

    def other(options):
        tokens = [row[::-1] for row in noisy_rows(300, 0)["code"].to_pylist()]
        pq.write_table(noisy_rows(300, 0).set_column(1, "code", pa.array(tokens)), folder / "other.parquet")
        return prepare(options.model_copy(update={"train": str(folder / "other.parquet")}))

    prepare = quantize.prepare
    monkeypatch.setattr(quantize, "prepare", other)
    with pytest.raises(InputError, match="the data is not that of the run any more"):
        export(run, folder / "refused")


def test_a_far_number_does_not_change_other_rows(folder):
    def table(count, seed):
        drawn = noisy_rows(count, seed)
        numbers = np.random.default_rng(seed)
        return drawn.append_column(
            "x", pa.array([numbers.normal(size=len(row)).tolist() for row in drawn["code"].to_pylist()])
        )

    settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", "model=lstm"]
    trained = seqclf.fit(
        table(300, 0), label="label", test=table(100, 1), overrides=settings, folder=folder / "numbers"
    )
    export(trained.folder, folder / "numbers8")
    new = table(40, 2).drop_columns("label").to_pylist()
    far = [{**row, "x": [1e6, *row["x"][1:]]} for row in new[:4]]
    classifier = Classifier(folder / "numbers8")
    alone, beside = classifier.predict(new), classifier.predict([*new, *far])
    changes = [
        abs(one["probabilities"]["yes"] - other["probabilities"]["yes"])
        for one, other in zip(alone, beside[: len(alone)], strict=True)
    ]
    assert max(changes) < 0.1  # without the limit of inputs 0.5
