"""A bundle of a forward recurrent model has a second graph: checked like the first, and read by streams."""

import copy
import json
import shutil
from types import SimpleNamespace

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bundle.conftest import sequences_of
from bundle.test_malformed import WRONG_VALUES, is_refused, mutations, write_signed
from onnx import numpy_helper
from support.untrained_task import export_table

from seqclf.bundle import model, parity, sequence_reader
from seqclf.bundle.journal import Journal
from seqclf.bundle.manifest import read_bundle
from seqclf.bundle.running import first_alerts
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.session import open_session
from seqclf.bundle.step_model import open_step
from seqclf.commands.predict import predict_file
from seqclf.data.encoding.encoders import encode
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision

FORWARD = {"cell": "gru", "bidirectional": False, "pooling": "mean+attention"}


@pytest.fixture(scope="module")
def forward(tmp_path_factory):
    work = tmp_path_factory.mktemp("forward")
    sequences = sequences_of("card")
    rows = [{**entry, "label": f"k{row % 3}"} for row, entry in enumerate(sequences)]
    return export_table(work, pa.Table.from_pylist(rows), FORWARD).folder, sequences


def step_of(folder, path=None):
    manifest = json.loads((folder / "manifest.json").read_text())
    classifier = Classifier(folder, device="cpu", threads=1)
    return open_step(path or folder, manifest, classifier.specs, device="cpu")


def test_the_manifest_lists_and_describes_the_step(forward):
    manifest = read_bundle(forward[0])[0]
    assert "step.onnx" in manifest["files"]
    states = {state["name"]: (state["shape"], state["initial"]) for state in manifest["step"]["states"]}
    assert states["hidden_0"] == ([8], 0.0) and states["attention_weight"] == ([1], 0.0)
    assert states["attention_max"][1] < -1e38


def test_parity_covers_the_chunks(forward, tmp_path):
    folder, _ = forward
    session = open_session(folder / "model.onnx", "cpu")
    stored = json.loads((folder / "parity.json").read_text())
    repeated = parity.check(session, folder / "parity.npz", step_of(folder))
    assert repeated.passed and set(repeated.cells) == set(stored["cells"])
    assert sum(cell.endswith("_chunks") for cell in repeated.cells) == len(repeated.cells) / 2

    model = onnx.load(folder / "step.onnx")
    bias = next(weight for weight in model.graph.initializer if weight.name.endswith("output.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1e-3), bias.name))
    onnx.save(model, tmp_path / "step.onnx")
    wrong = parity.check(session, folder / "parity.npz", step_of(folder, tmp_path))
    assert not wrong.passed and wrong.max_error == pytest.approx(1e-3, rel=0.1)


def test_a_damaged_step_is_detected(forward, tmp_path):
    folder = shutil.copytree(forward[0], tmp_path / "bundle")
    content = bytearray((folder / "step.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "step.onnx").write_bytes(content)
    with pytest.raises(InputError, match=r"step\.onnx has changed since the export"):
        Classifier(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["step.onnx"]
    write_signed(folder, manifest)
    with pytest.raises(InputError, match=r"files: no hash of step\.onnx"):
        Classifier(folder)


def test_a_mutated_step_streams_or_is_refused(forward, tmp_path):
    folder, sequences = forward
    folder = shutil.copytree(folder, tmp_path / "bundle")
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for mutation, changed in list(mutations({"step": manifest["step"]}))[::7]:
        write_signed(folder, {**copy.deepcopy(manifest), **changed})
        if is_refused(folder, sequences[0], mutation):
            refused += 1
            continue
        try:
            Classifier(folder, device="cpu", threads=1).stream().read({"a": sequences[0]})
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > len(WRONG_VALUES)


def part(sequence, start, stop):
    return {name: values[start:stop] for name, values in sequence.items()}


def test_a_stream_predicts_what_whole_sequences_give(forward):
    folder, sequences = forward
    classifier = Classifier(folder, device="cpu", threads=1)
    stream, longest = classifier.stream(), max(len(entry["shop"]) for entry in sequences)
    for start in range(0, longest, 4):
        named = {row: part(entry, start, start + 4) for row, entry in enumerate(sequences)}
        results = stream.read({row: entry for row, entry in named.items() if entry["shop"]})
        for row, result in results.items():
            expected = classifier.predict([part(sequences[row], 0, start + 4)])[0]
            assert result["prediction"] == expected["prediction"] and not result["halted"]
            assert result["probability"] == pytest.approx(expected["probability"], abs=1e-6)
            assert result["tokens"] == min(start + 4, len(sequences[row]["shop"]))
    assert len(stream) == len(sequences)
    stream.close(0)
    assert len(stream) == len(sequences) - 1


def test_running_scores_are_those_of_the_events_so_far(forward):
    folder, sequences = forward
    classifier = Classifier(folder, device="cpu", threads=2)
    table = classifier.running([*sequences, {"shop": [], "amount": []}]).to_pylist()
    prefixes = [part(entry, 0, stop) for entry in sequences for stop in range(1, len(entry["shop"]) + 1)]
    expected = classifier.predict(prefixes)
    assert [line["position"] for line in table[:-1]] == [len(prefix["shop"]) for prefix in prefixes]
    for line, prefix in zip(table[:-1], expected, strict=True):
        assert line["prediction"] == prefix["prediction"]
        assert line["probability"] == pytest.approx(prefix["probability"], abs=1e-5)
    assert table[-1]["id"] == len(sequences) + 1 and table[-1]["error"] and table[-1]["probability"] is None


def test_a_killed_running_prediction_goes_on(forward, tmp_path, monkeypatch):
    folder, sequences = forward
    pq.write_table(pa.Table.from_pylist(sequences), tmp_path / "new.parquet")
    classifier = Classifier(folder, device="cpu", threads=1, running=True)
    monkeypatch.setattr(model, "RUNNING_ROWS", 8)
    config = SimpleNamespace(input=str(tmp_path / "new.parquet"), output=str(tmp_path / "out.parquet"), engine="local")
    expected = predict_file(classifier, config).to_dict()
    content, write = (tmp_path / "out.parquet").read_bytes(), Journal._write
    assert pq.read_table(tmp_path / "out.parquet").num_rows == sum(len(entry["shop"]) for entry in sequences)

    def stop(written, *arguments):
        write(written, *arguments)
        if written.count == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Journal, "_write", stop)
        predict_file(classifier, config)
    windows = []
    monkeypatch.setattr(Journal, "_write", lambda *arguments: (windows.append(1), write(*arguments)))
    assert predict_file(classifier, config).to_dict()["rows"] == expected["rows"]
    assert len(windows) == len(sequences) / 8 - 2 and (tmp_path / "out.parquet").read_bytes() == content


def test_first_alerts_are_those_of_the_running_table(forward):
    folder, sequences = forward
    classifier = Classifier(folder, device="cpu", threads=1)
    classifier.decision = Decision(positive="k1")
    alerts = classifier.running(sequences).to_pandas()
    labels = np.arange(len(sequences)) % 3
    encoded = encode(classifier.encoders, next(classifier.row_columns(sequences))[0], NO_TRUNCATION).sequences
    found = first_alerts(classifier, encoded, labels)
    groups = [group["alert"].to_numpy() for _, group in alerts.groupby("id")]
    ends = [each[-1] for each in groups]
    expected = [
        (each.argmax() + 1, len(each) - 1 - each.argmax())
        for each, label in zip(groups, labels, strict=True)
        if label == 1 and each[-1]
    ]
    assert found.found[:, :2].tolist() == [list(each) for each in expected] and np.isnan(found.found[:, 2]).all()
    assert found.negatives == (labels != 1).sum()
    assert found.taken_back == sum(
        any(each) and not end and label != 1 for each, end, label in zip(groups, ends, labels, strict=True)
    )
    assert 0 < alerts["alert"].mean() < 1


def test_refused_tokens_leave_a_stream_as_it_was(forward):
    folder, sequences = forward
    stream = Classifier(folder, device="cpu", threads=1).stream()
    before = stream.read({"a": sequences[0]})["a"]
    results = stream.read({"a": {"shop": ["food"], "amount": ["x"]}, "b": {"shop": [], "amount": []}})
    assert "amount is not" in results["a"]["error"] and results["b"]["error"]
    assert results["a"]["tokens"] == before["tokens"] and len(stream) == 1
    assert stream.read({"a": sequences[1]})["a"]["error"] is None


def test_streams_that_cannot_be_are_refused(exported, forward, monkeypatch):
    with pytest.raises(
        InputError, match=r"reads whole sequences only; train with model=lstm model.bidirectional=false"
    ):
        Classifier(exported("card").folder, device="cpu").stream()
    classifier = Classifier(forward[0], device="cpu", threads=1)
    monkeypatch.setattr(type(classifier.encoders["amount"]), "encodes_token_by_token", False)
    with pytest.raises(InputError, match="a token of the number field amount depends on other tokens"):
        classifier.stream()


def test_a_stream_keeps_its_own_copies_and_reads_in_batches(forward, monkeypatch):
    folder, sequences = forward
    classifier = Classifier(folder, device="cpu", threads=1)
    monkeypatch.setattr(sequence_reader, "MAX_TOKENS", 8)
    stream = classifier.stream()
    first = stream.read({key: part(sequence, 0, 3) for key, sequence in enumerate(sequences)})
    expected = classifier.predict([part(sequence, 0, 3) for sequence in sequences])
    for key, prediction in first.items():
        assert prediction["probability"] == pytest.approx(expected[key]["probability"], abs=1e-6)
        assert all(values.base is None for values in stream.sequences[key].states)
        prediction["halted"], prediction["prediction"] = True, "changed"
    assert all(entry["prediction"] != "changed" for entry in stream.read({0: sequences[1]}).values())
    with pytest.raises(InputError, match="stream: got list; give the next tokens by the key of a sequence"):
        stream.read([1])


def test_a_stream_opened_after_the_bundle_was_replaced_is_of_the_one_that_was_loaded(forward, tmp_path):
    folder, sequences = forward
    classifier = Classifier(shutil.copytree(folder, tmp_path / "bundle"), device="cpu", threads=1)
    token = {name: values[:1] for name, values in sequences[0].items()}
    expected = classifier.stream().read({"a": token})
    shutil.rmtree(tmp_path / "bundle")
    assert classifier.stream().read({"a": token}) == expected
    assert expected["a"]["error"] is None
