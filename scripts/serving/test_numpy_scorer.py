"""The scorer of NumPy and ONNX Runtime gives the logits and labels of `Classifier`, and needs no other package."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, export_table, make_task

from seqclf import Classifier
from seqclf.data.prepare_data import prepare
from seqclf.evaluation.decision import Decision
from seqclf.runs.bundle_export import write_bundle

SCRIPT = Path(__file__).with_name("numpy_scorer.py")
FIELDS = {
    "shop": {"kind": "category", "missing": "value", "min_count": 2},
    "online": "category",
    "code": {"kind": "category", "hash_size": 7},
    "amount": {"kind": "number", "log": True, "missing": "last", "clip": 1.5},
    "place": {"kind": "number", "missing": "mean", "scale": "robust"},
    "heat": {"kind": "number", "missing": "zero", "missing_values": [-99.9], "mask": False},
    "raw": {"kind": "number", "scale": "none"},
}
STATIC = {"country": {"kind": "category", "missing": "value"}, "age": {"kind": "number", "missing": "mean"}}


@pytest.fixture(scope="module")
def scorer():
    """The class of the script, which is no package."""
    spec = importlib.util.spec_from_file_location("numpy_scorer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Scorer


def drawn_rows(seed, shops, rows=60, longest=14):
    """Rows of all fields, with missing values and lengths from 1 to `longest`."""
    generator = np.random.default_rng(seed)

    def some_missing(values):
        return [None if generator.random() < 0.2 else value for value in values]

    def row(length):
        return {
            "shop": some_missing(generator.choice(shops, length).tolist()),
            "online": (generator.random(length) < 0.5).tolist(),
            "code": generator.integers(0, 30, length).tolist(),
            "amount": some_missing((10 * generator.standard_normal(length)).tolist()),
            "place": [some_missing(token) for token in generator.standard_normal((length, 2)).tolist()],
            "heat": generator.choice([-99.9, 20.5, 21.25, 3.0], length).tolist(),
            "raw": generator.standard_normal(length).tolist(),
            "country": [None, "de", "fr", shops[-1]][generator.integers(4)],
            "age": [None, 20, 71][generator.integers(3)],
        }

    return [row(int(length)) for length in generator.integers(1, longest + 1, rows)]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("events"))


def exported(folder, side="keep_last", **decision):
    """Path of a bundle whose weights are random. `decision`: entries of its decision, none for the defaults."""
    rows = drawn_rows(0, ["food", "fuel", "fun"])
    table = pa.Table.from_pylist([{**row, "label": number % 2} for number, row in enumerate(rows)])
    pq.write_table(table, folder / "train.parquet")
    options = {"fields": FIELDS, "static": STATIC, "max_length": 10, "truncate": side}
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), **options))
    metrics = {"decision": Decision(**decision).to_dict()} if decision else {}
    write_bundle(make_task(dataset.description()), folder / "bundle", metrics)
    return folder / "bundle"


def assert_equal(scorer, folder, rows):
    """Assert that scorer and classifier give the rows equal logits, probabilities and labels."""
    classifier = Classifier(folder, device="cpu", threads=1)
    expected = classifier.predict(rows)
    assert [row["error"] for row in expected] == [None] * len(rows)
    labels, probabilities = scorer(folder).predict(rows)
    assert labels == [str(row["prediction"]) for row in expected]
    np.testing.assert_allclose(probabilities, classifier.predict_proba(rows), atol=1e-5, rtol=0)
    (columns, _), *_ = classifier.row_columns(rows)
    logits = classifier.predict_columns(columns).logits
    np.testing.assert_allclose(scorer(folder).logits(rows), logits, atol=1e-5, rtol=0)
    return labels, probabilities


@pytest.mark.parametrize("side", ["keep_last", "keep_first"])
def test_unknown_missing_and_static_values_and_long_rows_have_equal_logits(scorer, tmp_path, side):
    rows = drawn_rows(1, ["food", "fuel", "zoo", "", "bar"])
    assert_equal(scorer, exported(tmp_path, side), rows)
    assert_equal(scorer, tmp_path / "bundle", rows[:1])


def test_labels_follow_the_decision_of_the_bundle(scorer, events, tmp_path):
    rows = drawn_rows(1, ["food", "fuel", "zoo"])
    logits = scorer(events).logits(rows)  # those of the other bundle, which has the same weights
    likely = np.sort(Decision(temperature=0.7).probabilities(logits)[:, 1])
    threshold = float(likely[[14, 15]].mean())  # 45 of 60 rows have a higher probability
    labels, _ = assert_equal(scorer, exported(tmp_path, **threshold_rule(threshold), temperature=0.7), rows)
    assert labels.count("1") == 45


def threshold_rule(threshold):
    return {"rule": "threshold", "positive": "1", "threshold": threshold, "offsets": (0, 0), "positive_index": 1}


@pytest.mark.parametrize(
    "decision",
    [
        threshold_rule(0.0),
        threshold_rule(0.5),
        threshold_rule(1.0),  # no probability reaches it, not even one that is rounded to 1
        {"rule": "min_recall", "positive": "1", "threshold": 0.2, "offsets": (-1.5, 0.0), "temperature": 3.0},
    ],
)
def test_any_decision_chooses_the_labels_of_any_logits(scorer, events, decision):
    logits = np.array([[-100, 100], [0, 0], [800, -800], [0, -1], [4, 0], [0, 4]], np.float32)
    decision, served = Decision(**decision), scorer(events)
    served.manifest["decision"], served.logits = decision.to_dict(), lambda rows: logits
    labels, probabilities = served.predict([{}] * len(logits))
    assert labels == [str(index) for index in decision.choose(logits)]
    np.testing.assert_allclose(probabilities, decision.probabilities(logits), atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw": [1.0, None]}, "raw has a missing or infinite number"),
        ({"online": [True, None]}, "online has a missing value"),
        ({"shop": ["food"]}, "online has no token"),
        ({name: [] for name in FIELDS}, "shop has no token"),
    ],
)
def test_rows_that_predict_rejects_are_errors(scorer, events, changes, message):
    row = {**next(row for row in drawn_rows(1, ["food"]) if len(row["raw"]) == 2), **changes}
    with pytest.raises(ValueError, match=message):
        scorer(events).predict([row])


def test_long_rows_are_errors_if_the_bundle_does_not_cut_them(scorer, tmp_path):
    classifier = export_table(tmp_path, {"a": [[1, 2], [2]] * 9, "label": ["x", "y"] * 9}, max_length=2)
    assert classifier.predict([{"a": [1, 2, 1]}])[0]["error"]
    with pytest.raises(ValueError, match="a has no token, more than 2, or not as many"):
        scorer(tmp_path / "bundle").predict([{"a": [1, 2, 1]}])


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        ("set", [["u", "v"], ["u"]]),
        ("time", [1.0, 2.0]),
        ({"kind": "number", "scale": "sequence"}, [1.0, 2.0]),
        ({"kind": "number", "missing": "last", "since": "tokens"}, [1.0, 2.0]),
        ("text", "u v"),
    ],
)
def test_other_fields_are_one_line(scorer, tmp_path, field, cell):
    export_table(tmp_path, {"a": [cell] * 12, "label": ["x", "y"] * 6}, fields={"a": field})
    with pytest.raises(ValueError, match="a: only category and number fields"):
        scorer(tmp_path / "bundle")


def test_the_script_reads_lines_without_seqclf(tmp_path):
    """The script runs where no module of seqclf can be imported."""
    classifier = export_table(tmp_path, {"a": [[1, 2], [2]] * 9, "label": ["x", "y"] * 9})
    rows = [{"a": [1, 2, 9]}, {"a": [2]}]
    arguments = [str(SCRIPT), str(tmp_path / "bundle")]
    code = f"""
import runpy, sys
sys.modules |= dict.fromkeys(["seqclf", "torch", "pyarrow"])  # which raises ModuleNotFoundError at an import
sys.argv = {arguments}
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run([sys.executable, "-c", code], input=lines, check=True, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["prediction"] for row in found] == [row["prediction"] for row in classifier.predict(rows)]
    expected = classifier.predict_proba(rows)
    np.testing.assert_allclose([row["probabilities"] for row in found], expected, atol=1e-5, rtol=0)
