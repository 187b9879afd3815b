"""Export of a task: a complete bundle or none, with a parity check that can be repeated without PyTorch."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest

from seqclf.bundle import parity
from seqclf.bundle.manifest import read_bundle
from seqclf.bundle.session import open_session
from seqclf.errors import InputError
from seqclf.models.onnx.checks import grid
from seqclf.runs.bundle_export import write_bundle

KINDS = ["events", "text", "position", "visits", "card"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_holds_classes_schema_metrics_digest_versions_and_inputs(exported, kind):
    bundle = exported(kind)
    manifest, dataset = read_bundle(bundle.folder)[0], bundle.task.hparams["dataset"]
    assert manifest["classes"] == ["k0", "k1", "k2"]
    assert manifest["schema"] == dataset["schema"]
    assert manifest["metrics"] == {"test": {"recall": 0.5}}
    assert manifest["data"]["digest"] == dataset["digest"]
    assert set(manifest["versions"]) == {"seqclf", "torch", "onnx", "onnxruntime", "numpy", "pyarrow"}
    session = open_session(bundle.folder / "model.onnx", "cpu")
    assert manifest["inputs"] == {entry.name: entry.shape for entry in session.get_inputs()}


@pytest.mark.parametrize("kind", KINDS)
def test_parity_can_be_checked_again_without_torch(exported, kind):
    folder = exported(kind).folder
    repeated = parity.check(open_session(folder / "model.onnx", "cpu"), folder / "parity.npz")
    stored = json.loads((folder / "parity.json").read_text())
    assert repeated.passed and stored["passed"]
    assert set(repeated.cells) == set(stored["cells"])
    assert read_bundle(folder)[0]["parity"]["max_error"] == stored["max_error"] <= parity.TOLERANCE


def test_the_parity_grid_has_full_short_and_different_lengths_of_every_size():
    cells = {name: (lengths, time) for name, lengths, time in grid(np.random.default_rng(0))}
    assert len(cells) == 16 + 12 + 9
    for lengths, time in cells.values():
        assert lengths.min() >= 1 and lengths.max() <= time
    assert {1} == {len(cells[name][0]) for name in cells if name.startswith("B1_")}
    assert any(len(set(lengths)) > 3 for lengths, _ in cells.values())


def test_a_model_with_a_changed_weight_fails_parity(exported, tmp_path):
    import onnx
    from onnx import numpy_helper

    folder = exported("events").folder
    model = onnx.load(folder / "model.onnx")
    bias = next(weight for weight in model.graph.initializer if weight.name.endswith("output.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1e-3), bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    result = parity.check(open_session(tmp_path / "wrong.onnx", "cpu"), folder / "parity.npz")
    assert not result.passed
    assert result.max_error == pytest.approx(1e-3, rel=0.1)


class ConstantSession:
    def __init__(self, value):
        self.value = value

    def get_outputs(self):
        return [SimpleNamespace(name="logits")]

    def run(self, _, inputs):
        return [np.full((len(inputs["lengths"]), 3), self.value, np.float32)]


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_constant_or_non_finite_logits_fail_parity(exported, value):
    assert not parity.check(ConstantSession(value), exported("events").folder / "parity.npz").passed


def test_a_model_that_fails_parity_is_not_written(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "TOLERANCE", 0.0)
    with pytest.raises(InputError, match=r"the exported model differs from PyTorch by .* worst in B"):
        write_bundle(exported("events").task, tmp_path / "bundle", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../../ESCAPED", "/tmp/ESCAPED", "a/b", ".."])
@pytest.mark.parametrize("in_schema_too", [False, True])
def test_a_field_name_in_a_checkpoint_cannot_write_outside_the_bundle(exported, tmp_path, name, in_schema_too):
    task = copy.copy(exported("events").task)
    dataset = copy.deepcopy(task.hparams["dataset"])
    dataset["encoders"] = {name: dataset["encoders"]["events"]}
    if in_schema_too:
        dataset["schema"]["fields"][0]["name"] = dataset["fields"][0]["name"] = name
    task._hparams = {**task.hparams, "dataset": dataset}
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(InputError, match="the dataset that the checkpoint describes: "):
        write_bundle(task, tmp_path / "a" / "b" / "c" / "bundle", {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_is_not_a_bundle_is_not_replaced(exported, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="exists and is not a bundle; name another folder"):
        write_bundle(exported("events").task, tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_earlier_bundle_is_replaced(exported, tmp_path):
    folder = tmp_path / "deep" / "bundle"
    write_bundle(exported("events").task, folder, {"test": {"recall": 0.1}})
    first = read_bundle(folder)[0]
    write_bundle(exported("events").task, folder, {"test": {"recall": 0.2}})
    second = read_bundle(folder)[0]
    assert (first["metrics"]["test"]["recall"], second["metrics"]["test"]["recall"]) == (0.1, 0.2)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
