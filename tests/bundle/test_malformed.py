"""Malformed bundles work or are refused in one line, whatever their files contain. Their hashes are valid here."""

import copy
import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from seqclf.bundle import model
from seqclf.bundle.manifest import _digest, read_bundle
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.session import open_session
from seqclf.errors import InputError
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.report.verdict import verdict_of

WRONG_VALUES: list[Any] = [None, True, -1, 10**40, 0.5, float("nan"), "../../x", [], [[]], {"x": 1}]


def write_signed(folder, manifest):
    """Write a manifest with the right hashes of encoders and of itself, so that only its content can be wrong."""
    for name in manifest.get("files", {}) if isinstance(manifest.get("files"), dict) else ():
        if name.startswith("encoders/") and (folder / name).is_file():
            manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest["digest"] = _digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def value_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of nested dicts and lists. Only the first and the last entry of a list are visited."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        if isinstance(value, dict) or key in (0, len(value) - 1):
            yield from value_paths(entry, (*path, key))


def mutations(state: Any) -> Iterator[tuple[str, Any]]:
    """Descriptions and copies of a state, each with one value removed, extended or replaced."""
    for path in value_paths(state):
        for change in ("removed", "extended", *range(len(WRONG_VALUES))):
            changed = copy.deepcopy(state)
            parent = changed
            for key in path[:-1]:
                parent = parent[key]
            if change == "removed":
                del parent[path[-1]]
            elif change == "extended" and isinstance(parent[path[-1]], (list, str)):
                parent[path[-1]] = parent[path[-1]] * 2
            elif change == "extended" and isinstance(parent[path[-1]], dict):
                parent[path[-1]]["key of another version"] = 1
            elif isinstance(change, int):
                parent[path[-1]] = WRONG_VALUES[change]
            yield f"{'.'.join(map(str, path))} {change if isinstance(change, str) else WRONG_VALUES[change]}", changed


def is_refused(folder, sequence, mutation):
    """Whether a bundle is refused with InputError. It fails the test unless the bundle predicts or is refused."""
    try:
        (result,) = Classifier(folder, device="cpu").predict([sequence])
        kept = {"prediction", "probability", "probabilities", "error"}
        assert set(result) - {"tokens_read", "unknown", "far"} == kept
    except InputError as error:
        assert "\n" not in str(error)
        return True
    except Exception as error:
        pytest.fail(f"{mutation}: {type(error).__name__}: {error}")
    return False


# Every 23rd mutation, or all of them with -m soak.
SAMPLED = pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.soak)])


def decision_report(classifier):
    """Sentences of terminal, model card and report, and the thresholds of the classes."""
    classes, decision = classifier.classes, classifier.decision
    rows = 2 * len(classes)
    labels = np.arange(rows) % len(classes)
    logits = np.eye(len(classes), dtype=np.float32)[labels]
    outputs = ScoredRows(logits, labels, np.full(rows, 3), np.zeros(rows, bool))
    metrics = judge_split(outputs, classes, classifier.manifest["positive"], decision, with_intervals=False)
    result = RunResult(splits={"test": metrics}, decision=decision)
    return [*verdict_of(result).headline, *map(decision.threshold_of, range(len(classes)))]


OPTIONAL = {"basis": "folds", "approximate": True, "unit": "group", "takes": 0.3, "reached": 0.7, "beyond_lowest": 30}


@SAMPLED
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # temperatures and offsets near the limits of floats
def test_a_mutated_decision_predicts_and_is_reported_or_is_refused(copy_bundle, exported, monkeypatch, stride):
    folder = copy_bundle("alerts")
    session = open_session(folder / "model.onnx", "cpu")
    monkeypatch.setattr(model, "open_session", lambda *_, **__: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["decision"]["targets"][0] |= OPTIONAL
    write_signed(folder, manifest)
    assert len(decision_report(Classifier(folder, device="cpu"))) == 5
    refused = 0
    for mutation, changed in islice(mutations({"decision": manifest["decision"]}), 0, None, stride):
        write_signed(folder, {**manifest, **changed})
        try:
            classifier = Classifier(folder, device="cpu")
            assert classifier.predict([exported("alerts").sequences[0]]) and decision_report(classifier)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
        except Exception as error:
            pytest.fail(f"{mutation}: {type(error).__name__}: {error}")
    assert refused > 100 // stride


WRONG_DECISIONS = [
    ({"positive_index": 9}, "decision.positive_index: must be the number of the class decision.positive"),
    ({"positive_index": None}, "decision.rule: needs a threshold and a positive_index"),
    ({"rule": "min_recall", "positive": None, "positive_index": None}, "decision.threshold: needs decision.positive"),
    ({"rule": "all"}, "decision.rule: must be one of argmax, threshold, min_recall"),
    ({"label": "k7"}, r"decision.targets: must have a label of the classes"),
    ({"reached": [0.5]}, r"decision.targets\[0\].reached: must be a number from 0 to 1"),
    ({"statement": "foo"}, r"decision.targets\[0\].statement: must be one of sure, average, rows"),
    ({"statement": "rows", "target": 80}, r"decision.targets\[0\].target: must be a number from 0 to 1"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_DECISIONS)
def test_an_inconsistent_decision_is_refused_by_key(copy_bundle, changes, message):
    folder = copy_bundle("alerts")
    manifest = json.loads((folder / "manifest.json").read_text())
    decision = manifest["decision"]
    (decision if set(changes) <= set(decision) else decision["targets"][0]).update(changes)
    write_signed(folder, manifest)
    with pytest.raises(InputError, match=message):
        Classifier(folder)


@pytest.mark.parametrize(("backed", "statement"), [(True, "sure"), (False, "rows")])
def test_a_target_of_an_older_version_is_sure_if_the_rows_back_it(copy_bundle, backed, statement):
    folder = copy_bundle("alerts")
    manifest = json.loads((folder / "manifest.json").read_text())
    for target in manifest["decision"]["targets"]:
        del target["statement"], target["conflict"]
        target["backed"] = backed
    write_signed(folder, manifest)
    assert {target.statement for target in Classifier(folder).decision.targets} == {statement}
    manifest["decision"]["targets"][0]["confidence"] = None
    write_signed(folder, manifest)
    assert is_refused(folder, [], "no confidence") or not backed


def test_a_bundle_of_an_older_version_without_positive_index_predicts(copy_bundle, exported):
    folder = copy_bundle("alerts")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["decision"]["rule"] = "min_recall"
    del manifest["decision"]["positive_index"]
    write_signed(folder, manifest)
    assert not is_refused(folder, exported("alerts").sequences[0], "without positive_index")


@SAMPLED
@pytest.mark.parametrize("kind", ["card", "text", "alerts"])
def test_a_mutated_manifest_predicts_or_is_refused(copy_bundle, exported, monkeypatch, kind, stride):
    folder = copy_bundle(kind)
    session = open_session(folder / "model.onnx", "cpu")
    monkeypatch.setattr(model, "open_session", lambda *_, **__: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for mutation, changed in islice(mutations(manifest), 0, None, stride):
        if mutation.startswith(("parity", "versions", "metrics", "model.", "digest")):
            continue  # prediction does not read them
        write_signed(folder, changed)
        refused += is_refused(folder, exported(kind).sequences[0], mutation)
    assert refused > 100 // stride, "the mutations change no key that is checked"


@SAMPLED
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers beyond float32
@pytest.mark.parametrize("kind", ["card", "text", "position", "events"])
def test_a_mutated_encoder_predicts_or_is_refused(copy_bundle, exported, monkeypatch, kind, stride):
    folder = copy_bundle(kind)
    session = open_session(folder / "model.onnx", "cpu")
    monkeypatch.setattr(model, "open_session", lambda *_, **__: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for path in sorted((folder / "encoders").iterdir()):
        intact = path.read_bytes()
        for mutation, changed in islice(mutations(json.loads(intact)), 0, None, stride):
            path.write_text(json.dumps(changed), encoding="utf-8")
            write_signed(folder, copy.deepcopy(manifest))
            refused += is_refused(folder, exported(kind).sequences[0], f"{path.name} {mutation}")
        path.write_bytes(intact)
    assert refused > 10 // stride


DEEPLY_NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("text", ["", "[]", "\x00", DEEPLY_NESTED, '{"a": 1' + "0" * 5000 + "}", '{"\\ud800": 1}'])
def test_a_manifest_that_is_no_json_object_is_refused(copy_bundle, text):
    folder = copy_bundle("events")
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_bundle(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", DEEPLY_NESTED.encode()])
def test_a_malformed_encoder_file_is_refused_by_field(copy_bundle, content):
    folder = copy_bundle("events")
    (folder / "encoders/events.json").write_bytes(content)
    write_signed(folder, json.loads((folder / "manifest.json").read_text()))
    with pytest.raises(InputError, match=r"bundle=.*: encoder of events: .*; export"):
        Classifier(folder)


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "encoders/../../outside", ""])
def test_a_file_name_in_the_manifest_cannot_lead_out_of_the_bundle(copy_bundle, name):
    folder = copy_bundle("events")
    (folder.parent / "outside").write_text("x")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(b"x").hexdigest()
    write_signed(folder, manifest)
    with pytest.raises(InputError, match="not a path in the bundle; export the bundle anew"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["model.onnx", "encoders/events.json"])
def test_every_file_that_prediction_reads_needs_a_hash(copy_bundle, name):
    folder = copy_bundle("events")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][name]
    write_signed(folder, manifest)
    with pytest.raises(InputError, match=f"files: no hash of {name}"):
        Classifier(folder)


def replace_model(folder, content):
    (folder / "model.onnx").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.onnx"] = hashlib.sha256(content).hexdigest()
    write_signed(folder, manifest)


def test_a_damaged_model_predicts_or_is_refused_by_file_name(copy_bundle):
    folder = copy_bundle("events")
    model = (folder / "model.onnx").read_bytes()
    middle = len(model) // 2
    for content in (b"", b"not a model", model[:middle], model[:middle] + b"\xff" * 40 + model[middle + 40 :]):
        replace_model(folder, content)
        try:
            Classifier(folder, device="cpu").predict([[1, 2]])
        except InputError as error:
            assert "model.onnx" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(("kind", "other_kind"), [("events", "card"), ("card", "events"), ("position", "text")])
def test_the_model_of_another_bundle_is_refused(copy_bundle, exported, kind, other_kind):
    folder = copy_bundle(kind)
    replace_model(folder, (exported(other_kind).folder / "model.onnx").read_bytes())
    with pytest.raises(InputError, match=r"model\.onnx: takes the inputs .*; export the bundle anew"):
        Classifier(folder)


def test_a_token_beyond_the_embedding_is_refused_when_the_model_runs(copy_bundle):
    folder = copy_bundle("events")
    path = folder / "encoders/events.json"
    path.write_text(json.dumps({"values": list(range(1000))}))
    write_signed(folder, json.loads((folder / "manifest.json").read_text()))
    with pytest.raises(InputError, match=r"model\.onnx: cannot be run .*; export the bundle anew"):
        Classifier(folder, device="cpu").predict([[999]])
