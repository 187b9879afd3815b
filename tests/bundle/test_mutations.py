"""Findings of the fuzzer (scripts/fuzz.py) on bundles and journals, one test each."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.bundle import model
from seqclf.bundle.journal import Journal, journal_folder
from seqclf.bundle.manifest import write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError
from seqclf.predict import _predict


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


def test_the_error_of_a_model_is_one_line_and_nothing_else(copy_bundle, capfd):
    folder = copy_bundle("events")
    graph = onnx.load(folder / "model.onnx")
    bias = next(each for each in graph.graph.initializer if each.name.endswith("layers.0.bias"))
    values = onnx.numpy_helper.to_array(bias)
    bias.CopyFrom(onnx.numpy_helper.from_array(values.reshape(-1), bias.name))
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    sign(folder)
    with pytest.raises(InputError, match=r"model\.onnx"):
        Classifier(folder, device="cpu").predict([[1, 2]])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [b"lengths", b"batch"])
def test_a_name_in_a_model_is_utf8(copy_bundle, name):
    path = copy_bundle("events") / "model.onnx"
    path.write_bytes(path.read_bytes().replace(name, name[:-1] + b"\xff"))
    sign(path.parent)
    with pytest.raises(InputError, match=r"model\.onnx: cannot be loaded \('utf-8' codec can't decode byte 0xff"):
        Classifier(path.parent, device="cpu")


def test_a_text_that_needs_gigabytes_is_refused(classifier):
    found = classifier("text").predict([{"text": "rain"}, {"text": "x" * (2**24 + 1)}])
    assert [row["error"] for row in found] == [None, "text has more than 16,777,216 characters"]


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


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def resume(exported, tmp_path, monkeypatch):
    """Function that kills a prediction after two windows, calls a function on its journal, and predicts again.

    It returns the bytes of the output, and those of a prediction that was not killed.
    """
    bundle, output = exported("events").folder, str(tmp_path / "out/scores.parquet")
    pq.write_table(pa.table({"events": exported("events").sequences}), tmp_path / "new.parquet")
    monkeypatch.setattr(model, "WINDOW_ROWS", 8)
    unset = dict.fromkeys(("sequence", "threshold", "budget", "ray", "header", "encoding", "quote", "delimiter"))
    paths = {"bundle": str(bundle), "input": str(tmp_path / "new.parquet"), "output": output}
    config = SimpleNamespace(**unset, **paths, explain=False, device="cpu", threads=1, engine="local")

    def predicted():
        _predict(config)
        return Path(output).read_bytes()

    def run(change):
        expected, write = predicted(), Journal._write
        Path(output).unlink()

        def killed(written, *arguments):
            write(written, *arguments)
            if written.count == 2:
                raise Killed

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Journal, "_write", killed)
            _predict(config)
        change(journal_folder(output))
        return predicted(), expected

    return run


@pytest.mark.parametrize("name", ["00000001.window", "run.json", "unfinished"])
@pytest.mark.parametrize("kind", ["folder", "link", "FIFO"])
def test_a_journal_with_other_than_files_is_predicted_again(resume, tmp_path, name, kind):
    (tmp_path / "private").write_text("of the user")

    def change(held):
        (held / name).unlink(missing_ok=True)
        make = {"folder": os.mkdir, "FIFO": os.mkfifo, "link": lambda path: path.symlink_to(tmp_path / "private")}
        make[kind](held / name)

    found, expected = resume(change)
    assert found == expected
    assert (tmp_path / "private").read_text() == "of the user"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scores.parquet"]


def test_a_journal_of_deeply_nested_json_is_predicted_again(resume):
    found, expected = resume(lambda held: (held / "run.json").write_text("[" * 100_000))
    assert found == expected


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_journal_that_is_no_folder_is_replaced(resume, tmp_path, kind):
    def change(held):
        held.rename(tmp_path / "private")
        held.symlink_to(tmp_path / "private") if kind == "link" else held.write_text("x")
        (tmp_path / "private" / "run.json").write_text("of the user")

    found, expected = resume(change)
    assert found == expected
    assert (tmp_path / "private" / "run.json").read_text() == "of the user"
    assert len([*(tmp_path / "private").glob("*.window")]) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scores.parquet"]


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
