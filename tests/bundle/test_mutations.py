"""Findings of the fuzzer (scripts/fuzz.py) on bundles, one test each."""

import json

import onnx
import pytest

from seqclf.bundle.manifest import write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError


def sign(folder):
    described = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, {key: described[key] for key in described if key not in ("format", "files", "digest")})


@pytest.mark.parametrize("place", [".", "..", "absolute"])
def test_a_model_cannot_read_weights_outside_of_its_bundle(copy_bundle, tmp_path, monkeypatch, place):
    folder = copy_bundle("events")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    graph = onnx.load(folder / "model.onnx")
    tensor = next(each for each in graph.graph.initializer if len(each.raw_data) > 64)
    (tmp_path / "work/secret.bin").write_bytes(tensor.raw_data)
    (tmp_path / "secret.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    name = {".": "secret.bin", "..": "../secret.bin", "absolute": str(tmp_path / "secret.bin")}[place]
    tensor.external_data.add(key="location", value=name)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    sign(folder)
    with pytest.raises(InputError, match=r"model\.onnx: cannot be loaded .*External data path"):
        Classifier(folder, device="cpu")


@pytest.mark.parametrize("change", ["large id", "no unknown token"])
def test_the_ids_of_a_tokenizer_are_those_of_its_tokens(copy_bundle, change):
    folder = copy_bundle("text")
    path = folder / "encoders/text.json"
    state = json.loads(path.read_text())
    vocabulary = state["tokenizer"]["model"]["vocab"]
    if change == "large id":
        vocabulary["rain"] = 2**31
    else:
        state["tokenizer"]["model"]["unk_token"] = "rain"
        vocabulary["other"] = vocabulary.pop("[UNK]")
    path.write_text(json.dumps(state))
    sign(folder)
    with pytest.raises(InputError, match=r"encoder of text: tokenizer: must have ids below its number of tokens"):
        Classifier(folder, device="cpu").predict(["green rain", "unseen"])


SETTINGS = {
    "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)+$"}, "behavior": "Isolated", "invert": False},
    "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
    "added_tokens": [{"id": 1, "content": "rain", "special": True}],
    "model.unk_token": "rain",
    "model.dropout": 0.5,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_tokenizer_has_no_settings_but_those_of_its_field(copy_bundle, name):
    folder = copy_bundle("text")
    path = folder / "encoders/text.json"
    state = json.loads(path.read_text())
    settings = state["tokenizer"]["model"] if name.startswith("model.") else state["tokenizer"]
    settings[name.removeprefix("model.")] = SETTINGS[name]
    path.write_text(json.dumps(state))
    sign(folder)
    with pytest.raises(InputError, match=r"encoder of text: tokenizer: has settings that are not those of the field"):
        Classifier(folder, device="cpu")
