"""A task becomes a bundle: whole or not at all, with all that prediction needs."""

import copy
import json

import numpy as np
import pytest

from seqclf.bundle import parity
from seqclf.bundle.manifest import read_manifest
from seqclf.bundle.runtime import open_session
from seqclf.errors import InputError
from seqclf.export_bundle import write_bundle

KINDS = ["events", "text", "place", "card"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_tells_what_the_bundle_is(packed, kind):
    made = packed(kind)
    manifest, dataset = read_manifest(made.folder), made.task.hparams["dataset"]
    assert manifest["classes"] == ["k0", "k1", "k2"]
    assert manifest["schema"] == dataset["schema"]
    assert manifest["metrics"] == {"test": {"recall": 0.5}}
    assert manifest["data"]["digest"] == dataset["digest"]
    assert set(manifest["versions"]) == {"seqclf", "torch", "onnx", "onnxruntime"}
    session = open_session(made.folder / "model.onnx", "cpu", 1)
    assert manifest["inputs"] == {given.name: given.shape for given in session.get_inputs()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_proof_can_be_repeated_without_torch(packed, kind):
    folder = packed(kind).folder
    proof = parity.check(open_session(folder / "model.onnx", "cpu", 1), folder / "parity.npz")
    stored = json.loads((folder / "parity.json").read_text())
    assert proof["passed"] and stored["passed"]
    assert set(proof["cells"]) == set(stored["cells"])
    assert read_manifest(folder)["parity"]["max_error"] == stored["max_error"] <= parity.TOLERANCE


def test_the_grid_holds_every_pattern():
    cells = {name: (lengths, time) for name, lengths, time in parity.grid(np.random.default_rng(0))}
    assert len(cells) == 16 + 12 + 9
    for lengths, time in cells.values():
        assert lengths.min() >= 1 and lengths.max() <= time
    assert {1} == {len(cells[name][0]) for name in cells if name.startswith("B1_")}
    assert any(len(set(lengths)) > 3 for lengths, _ in cells.values())


def test_a_wrong_model_fails_the_proof(packed, tmp_path):
    import onnx
    from onnx import numpy_helper

    folder = packed("events").folder
    model = onnx.load(folder / "model.onnx")
    bias = next(weight for weight in model.graph.initializer if weight.name.endswith("output.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1e-3), bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    proof = parity.check(open_session(tmp_path / "wrong.onnx", "cpu", 1), folder / "parity.npz")
    assert not proof["passed"]
    assert proof["max_error"] == pytest.approx(1e-3, rel=0.1)


class Fixed:
    """A session whose logits are all one value."""

    def __init__(self, value):
        self.value = value

    def run(self, _, inputs):
        return [np.full((len(inputs["lengths"]), 3), self.value, np.float32)]


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_model_that_gives_no_numbers_fails_the_proof(packed, value):
    assert not parity.check(Fixed(value), packed("events").folder / "parity.npz")["passed"]


def test_a_model_that_differs_is_not_written(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "TOLERANCE", 0.0)
    with pytest.raises(InputError, match=r"the exported model differs from PyTorch by .* worst in B"):
        write_bundle(packed("events").task, tmp_path / "bundle", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../../ESCAPED", "/tmp/ESCAPED", "a/b", ".."])
@pytest.mark.parametrize("everywhere", [False, True])
def test_no_name_in_a_checkpoint_is_a_path_to_write(packed, tmp_path, name, everywhere):
    task = copy.copy(packed("events").task)
    dataset = copy.deepcopy(task.hparams["dataset"])
    dataset["encoders"] = {name: dataset["encoders"]["events"]}
    if everywhere:
        dataset["schema"]["fields"][0]["name"] = dataset["fields"][0]["name"] = name
    monkey = {**task.hparams, "dataset": dataset}
    task._hparams = monkey
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(InputError, match="the dataset that the checkpoint describes: "):
        write_bundle(task, tmp_path / "a" / "b" / "c" / "bundle", {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("written", [{"decision": {}}, {"decision": 5}, {"test": 5}, {"decision": {"rule": "x"}}])
def test_scores_that_are_none_are_refused_by_name(packed, tmp_path, written):
    with pytest.raises(InputError, match=r"metrics\.json of the run: .*; remove it"):
        write_bundle(packed("events").task, tmp_path / "bundle", written)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_not_touched(packed, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="exists and is not a bundle; name another folder"):
        write_bundle(packed("events").task, tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("below", [".", "deep/bundle"])
def test_a_file_in_the_way_is_refused_by_name(packed, tmp_path, below):
    path = tmp_path / "notes.txt"
    path.write_text("not a folder")
    with pytest.raises(InputError, match=r"bundle=.*notes\.txt"):
        write_bundle(packed("events").task, path / below, {})
    assert path.read_text() == "not a folder"


def test_an_earlier_bundle_is_replaced(packed, tmp_path):
    folder = tmp_path / "deep" / "bundle"
    write_bundle(packed("events").task, folder, {"test": {"recall": 0.1}})
    first = read_manifest(folder)
    write_bundle(packed("events").task, folder, {"test": {"recall": 0.2}})
    second = read_manifest(folder)
    assert (first["metrics"]["test"]["recall"], second["metrics"]["test"]["recall"]) == (0.1, 0.2)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
