"""A bundle from anywhere works or is refused in one line, whatever its files say; their hashes are right here."""

import copy
import hashlib
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from seqclf.bundle import runtime
from seqclf.bundle.manifest import _digest, read_manifest
from seqclf.bundle.runtime import Classifier, open_session
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.evaluation.results import SplitOutputs, evaluate_split
from seqclf.reporting.guarantees import decision_lines

WRONG: list[Any] = [None, True, -1, 10**40, 0.5, float("nan"), "../../x", [], [[]], {"x": 1}]


@pytest.fixture
def copied(packed, tmp_path):
    def copy_of(kind):
        return shutil.copytree(packed(kind).folder, tmp_path / kind)

    return copy_of


def sign(folder, manifest):
    """Write a manifest whose hashes are those of the files, so that only its content can be wrong."""
    for name in manifest.get("files", {}) if isinstance(manifest.get("files"), dict) else ():
        if name.startswith("encoders/") and (folder / name).is_file():
            manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest["digest"] = _digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a tree; of a list the first and the last entry stand for all."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        if isinstance(value, dict) or key in (0, len(value) - 1):
            yield from places(entry, (*path, key))


def mutations(state: Any) -> Iterator[tuple[str, Any]]:
    """Copies of a state in which one value is gone, doubled or another."""
    for path in places(state):
        for change in ("gone", "more", *range(len(WRONG))):
            changed = copy.deepcopy(state)
            above = changed
            for key in path[:-1]:
                above = above[key]
            if change == "gone":
                del above[path[-1]]
            elif change == "more" and isinstance(above[path[-1]], (list, str)):
                above[path[-1]] = above[path[-1]] * 2
            elif change == "more" and isinstance(above[path[-1]], dict):
                above[path[-1]]["of another version"] = 1
            elif isinstance(change, int):
                above[path[-1]] = WRONG[change]
            yield f"{'.'.join(map(str, path))} {change if isinstance(change, str) else WRONG[change]}", changed


def works_or_is_refused(folder, sequence, what):
    try:
        (result,) = Classifier(folder, device="cpu").predict([sequence])
        assert set(result) == {"prediction", "probability", "probabilities", "error"}
    except InputError as error:
        assert "\n" not in str(error)
        return True
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    return False


SAMPLED = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])


def report_of(classifier):
    """Whatever the terminal, the model card and the report say of a decision."""
    rows = 2 * len(classifier.classes)
    labels = np.arange(rows) % len(classifier.classes)
    logits = np.eye(len(classifier.classes), dtype=np.float32)[labels]
    scored = SplitOutputs(logits, labels, np.full(rows, 3), np.zeros(rows, bool))
    decision = classifier.decision
    scores = evaluate_split(scored, classifier.classes, classifier.manifest["positive"], decision, with_intervals=False)
    return [*decision_lines(decision, scores, "test"), *map(decision.threshold_of, range(len(classifier.classes)))]


@SAMPLED
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # temperatures and offsets near the limits of floats
def test_a_mutated_decision_decides_and_is_reported_or_is_refused(copied, packed, monkeypatch, every):
    folder = copied("alerts")
    session = open_session(folder / "model.onnx", "cpu", 1)
    monkeypatch.setattr(runtime, "open_session", lambda *_: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(report_of(Classifier(folder, device="cpu"))) == 7
    refused = 0
    for what, changed in islice(mutations({"decision": manifest["decision"]}), 0, None, every):
        sign(folder, {**manifest, **changed})
        try:
            classifier = Classifier(folder, device="cpu")
            assert classifier.predict([packed("alerts").sequences[0]]) and report_of(classifier)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")
    assert refused > 100 // every


WRONG_DECISIONS = [
    ({"positive_index": 9}, "decision.positive_index must be the number of the class decision.positive"),
    ({"positive_index": "x"}, "decision.positive_index must be the number"),
    ({"positive_index": 0}, "decision.positive_index must be the number"),
    ({"positive_index": True}, "decision.positive_index must be the number"),
    ({"positive_index": None}, "decision.rule=threshold needs decision.threshold and decision.positive_index"),
    ({"threshold": None}, "decision.rule=threshold needs decision.threshold"),
    ({"rule": "min_recall", "positive": None, "positive_index": None}, "decision.threshold needs decision.positive"),
    ({"rule": "all"}, "decision.rule must be one of argmax, threshold, min_recall"),
    ({"targets": [{"x": 1}]}, r"decision.targets\[0\].rule is missing"),
    ({"label": "k7"}, r"decision.targets\[0\].label must be one of the classes"),
    ({"rows": "x"}, r"decision.targets\[0\].rows must be a whole number"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_DECISIONS)
def test_a_decision_that_cannot_be_is_refused_by_its_key(copied, changes, message):
    folder = copied("alerts")
    manifest = json.loads((folder / "manifest.json").read_text())
    decision = manifest["decision"]
    (decision if set(changes) <= set(decision) else decision["targets"][0]).update(changes)
    sign(folder, manifest)
    with pytest.raises(InputError, match=message):
        Classifier(folder)


def test_a_bundle_of_an_older_version_has_no_positive_index(copied, packed):
    folder = copied("alerts")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["decision"]["rule"] = "min_recall"
    del manifest["decision"]["positive_index"]
    sign(folder, manifest)
    assert not works_or_is_refused(folder, packed("alerts").sequences[0], "without positive_index")


@SAMPLED
@pytest.mark.parametrize("kind", ["card", "text", "alerts"])
def test_a_mutated_manifest_works_or_is_refused(copied, packed, monkeypatch, kind, every):
    folder = copied(kind)
    session = open_session(folder / "model.onnx", "cpu", 1)
    monkeypatch.setattr(runtime, "open_session", lambda *_: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for what, changed in islice(mutations(manifest), 0, None, every):
        if what.startswith(("parity", "versions", "metrics", "model.", "digest")):
            continue  # shown, not used
        sign(folder, changed)
        refused += works_or_is_refused(folder, packed(kind).sequences[0], what)
    assert refused > 100 // every, "the mutations reach what is checked"


@SAMPLED
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers beyond float32
@pytest.mark.parametrize("kind", ["card", "text", "place", "events"])
def test_a_mutated_encoder_works_or_is_refused(copied, packed, monkeypatch, kind, every):
    folder = copied(kind)
    session = open_session(folder / "model.onnx", "cpu", 1)
    monkeypatch.setattr(runtime, "open_session", lambda *_: session)
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for path in sorted((folder / "encoders").iterdir()):
        intact = path.read_bytes()
        for what, changed in islice(mutations(json.loads(intact)), 0, None, every):
            path.write_text(json.dumps(changed), encoding="utf-8")
            sign(folder, copy.deepcopy(manifest))
            refused += works_or_is_refused(folder, packed(kind).sequences[0], f"{path.name} {what}")
        path.write_bytes(intact)
    assert refused > 10 // every


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", [DEEP, '{"format": 1, "x": ' + DEEP + "}", '{"a": 1' + "0" * 5000 + "}", '{"\\ud800": 1}']
)
def test_a_manifest_no_parser_takes_is_refused(copied, text):
    folder = copied("events")
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_manifest(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", DEEP.encode(), b'"x"'])
def test_an_encoder_file_that_is_none_is_refused_by_name(copied, content):
    folder = copied("events")
    (folder / "encoders/events.json").write_bytes(content)
    sign(folder, json.loads((folder / "manifest.json").read_text()))
    with pytest.raises(InputError, match=r"bundle=.*: encoder of events: .*; export"):
        Classifier(folder)


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "encoders/../../outside", ""])
def test_no_name_of_a_file_leads_out_of_the_bundle(copied, name):
    folder = copied("events")
    (folder.parent / "outside").write_text("x")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(b"x").hexdigest()
    sign(folder, manifest)
    with pytest.raises(InputError, match="is no path in the bundle; export the bundle anew"):
        read_manifest(folder)


@pytest.mark.parametrize("name", ["model.onnx", "encoders/events.json"])
def test_a_file_that_prediction_reads_cannot_go_without_its_hash(copied, name):
    folder = copied("events")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][name]
    sign(folder, manifest)
    with pytest.raises(InputError, match=f"files has no hash of {name}"):
        Classifier(folder)


def replaced_model(folder, content):
    (folder / "model.onnx").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.onnx"] = hashlib.sha256(content).hexdigest()
    sign(folder, manifest)


def test_a_damaged_model_is_refused_by_name(copied):
    folder = copied("events")
    model = (folder / "model.onnx").read_bytes()
    middle = len(model) // 2
    for content in (b"", b"not a model", model[:middle], model[:middle] + b"\xff" * 40 + model[middle + 40 :]):
        replaced_model(folder, content)
        try:
            Classifier(folder, device="cpu").predict([[1, 2]])
        except InputError as error:
            assert "model.onnx" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(("kind", "other"), [("events", "card"), ("card", "events"), ("place", "text")])
def test_the_model_of_another_bundle_is_refused(copied, packed, kind, other):
    folder = copied(kind)
    replaced_model(folder, (packed(other).folder / "model.onnx").read_bytes())
    with pytest.raises(InputError, match=r"model\.onnx: takes the inputs .*; export the bundle anew"):
        Classifier(folder)


def test_a_vocabulary_larger_than_the_embedding_is_refused_at_its_first_id(copied):
    folder = copied("events")
    path = folder / "encoders/events.json"
    path.write_text(json.dumps({"values": list(range(1000))}))
    sign(folder, json.loads((folder / "manifest.json").read_text()))
    with pytest.raises(InputError, match=r"model\.onnx: cannot be run .*; export the bundle anew"):
        Classifier(folder, device="cpu").predict([[999]])


def test_a_bundle_takes_no_sql(classifier):
    with pytest.raises(InputError, match="is SQL, which only training reads"):
        next(classifier("events").predict_source(Source("SELECT 1 AS events", "input")))
