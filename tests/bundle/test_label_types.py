"""Predictions have the type of the column that held the labels."""

import copy
import json
import shutil
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, make_task

from seqclf.bundle.manifest import read_bundle, write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.scoring import predict_labelled
from seqclf.commands.predict import predict_text
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import label_codes
from seqclf.runs.bundle_export import write_bundle

TYPES = {
    "integer": ([2, 10], pa.int64(), ["2", "10"]),
    "small integer": (np.array([0, 1], np.uint8), pa.int64(), ["0", "1"]),
    "number": ([0.5, 1.0], pa.float64(), ["0.5", "1"]),
    "boolean": ([False, True], pa.bool_(), ["false", "true"]),
    "date": ([date(2024, 1, 31), date(2025, 1, 31)], pa.date32(), ["2024-01-31", "2025-01-31"]),
    "text": (["2", "10"], pa.string(), ["2", "10"]),
    "category": (pd.Categorical(["no", "yes"]), pa.string(), ["no", "yes"]),
}


def labelled(kind, folder):
    labels = pd.Series(TYPES[kind][0]).repeat(10).reset_index(drop=True)
    frame = pd.DataFrame({"events": [[row % 4, 1] for row in range(20)], "label": labels})
    pq.write_table(pa.Table.from_pandas(frame), folder / "train.parquet")
    return prepare(data_options(folder / "cache", train=str(folder / "train.parquet")))


@pytest.fixture(scope="module")
def bundle_of(tmp_path_factory):
    """Function that returns the classifier of a type. One is exported, the others differ in the manifest alone."""
    loaded = {}
    folder = tmp_path_factory.mktemp("labels")
    write_bundle(make_task(labelled("integer", folder).description()), folder / "integer", {})

    def load(kind):
        if kind not in loaded:
            bundle = folder / kind
            if kind != "integer":
                shutil.copytree(folder / "integer", bundle)
                manifest = read_bundle(bundle)[0]
                work = tmp_path_factory.mktemp("kind")
                dataset = labelled(kind, work)
                manifest |= {"classes": dataset.classes, "positive": None, "schema": dataset.schema.to_dict()}
                (bundle / "manifest.json").unlink()
                write_manifest(
                    bundle, {key: value for key, value in manifest.items() if key not in ("files", "digest")}
                )
            loaded[kind] = Classifier(bundle, device="cpu", threads=1)
        return loaded[kind]

    return load


@pytest.mark.parametrize("kind", TYPES)
def test_tables_and_rows_are_predicted_in_the_type_of_the_labels(bundle_of, kind):
    classifier = bundle_of(kind)
    _, arrow_type, names = TYPES[kind]
    labels = classifier.labels.to_pylist()
    assert classifier.classes == names and classifier.labels.type == arrow_type
    assert classifier.classes_.tolist() == labels and len(classifier.classes_) == 2
    rows = [[1, 2], [], [3, 3, 0]]
    table = classifier.predict(pa.table({"events": rows}))
    assert table.schema.field("prediction").type == arrow_type
    of_classes = [f"probability_{name}" for name in names]
    assert table.column_names == ["prediction", "probability", *of_classes, "unknown", "error"]
    predicted = table.column("prediction").to_pylist()
    assert predicted[1] is None and {predicted[0], predicted[2]} <= set(labels)
    assert [row["prediction"] for row in classifier.predict(rows)] == predicted
    first = classifier.predict(rows)[0]
    assert (
        list(first["probabilities"]) == labels and first["probabilities"][first["prediction"]] == first["probability"]
    )
    assert classifier.predict(pa.table({"events": pa.array([], pa.list_(pa.int64()))})).schema == table.schema


def test_dates_are_json_texts(bundle_of):
    shown = predict_text(bundle_of("date"), "[1, 2]").to_dict()
    assert [*json.loads(json.dumps(shown, default=str))["probabilities"]] == ["2024-01-31", "2025-01-31"]


def write_labels(path, labels):
    table = pa.table({"events": [[1, 2], [3, 0]] * 10, "label": labels})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        rows = "".join(f'"{cells}",{label}\n' for cells, label in zip(*table.to_pydict().values(), strict=True))
        path.write_text(f"events,label\n{rows}")
    return str(path)


SPELLINGS = {"typed.parquet": [True, False], "title.csv": ["True", "False"], "upper.csv": ["TRUE", "FALSE"]}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_bundle_with_boolean_labels_is_scored_on_all_formats(bundle_of, tmp_path, name):
    source = Source(write_labels(tmp_path / name, SPELLINGS[name] * 10), "test")
    assert predict_labelled(bundle_of("boolean"), source, "label", None).outputs.labels.tolist() == [1, 0] * 10


def test_classes_that_differ_in_case_stay_apart():
    codes = label_codes(pa.array(["true", "True", "TRUE", "no"]), ["True", "no", "true"])
    assert codes.tolist() == [2, 0, -1, 1]


@pytest.mark.parametrize(("kind", "dtype"), [("integer", "Int64"), ("boolean", "boolean")])
def test_labels_of_a_frame_keep_their_type_beside_refused_rows(bundle_of, kind, dtype):
    rows = [[1, 2], [], [3, 0]]
    expected = [row["prediction"] for row in bundle_of(kind).predict(rows)]
    predicted = bundle_of(kind).predict(pd.DataFrame({"events": rows}, index=[7, 8, 9]))["prediction"]
    assert predicted.dtype == dtype and predicted.isna().tolist() == [False, True, False]
    assert [predicted[7], predicted[9]] == [expected[0], expected[2]]
    assert all(isinstance(predicted[row], type(expected[0]) | np.bool_ | np.integer) for row in (7, 9))


def test_names_of_classes_are_shown_as_they_are(bundle_of, capsys):
    classifier = copy.copy(bundle_of("text"))
    names = {"2": "a [/b] :smile:", "10": "\x1b]0;title\x07"}
    classifier.predict = lambda _: [
        {"error": None, "prediction": "2", "probability": 0.5, "probabilities": dict.fromkeys(names.values(), 0.5)}
    ]
    predict_text(classifier, "[1, 2]")
    assert capsys.readouterr().err.splitlines() == ["  0.5000  a [/b] :smile:", "  0.5000  \ufffd]0;title\ufffd"]
