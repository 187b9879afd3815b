"""Static fields of a bundle: the same predictions from files, tables, Python rows and streams, and explanations."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import export_table

from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError

SEQUENCES, LENGTH = 30, 4
FIELDS = {"shop": "category", "amount": "number"}
STATIC = {
    "home": {"kind": "category", "column": "country"},
    "age": "number",
    "height": {"kind": "number", "missing": "mean"},
}


def events(seed=0):
    random = np.random.default_rng(seed)

    def each(values):
        return np.repeat(values, LENGTH).tolist()

    return {
        "card": each(np.arange(SEQUENCES)),
        "seq": random.permutation(SEQUENCES * LENGTH).tolist(),
        "shop": [f"s{shop}" for shop in random.integers(0, 5, SEQUENCES * LENGTH)],
        "amount": random.lognormal(size=SEQUENCES * LENGTH).tolist(),
        "country": each([f"c{country}" for country in random.integers(0, 4, SEQUENCES)]),
        "age": each(random.integers(18, 90, SEQUENCES)),
        "height": [None if card % 5 == 0 else 150.0 + card for card in each(np.arange(SEQUENCES))],
        "label": each(["a", "b"] * (SEQUENCES // 2)),
    }


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Classifier:
    options = {"group_by": "card", "order_by": "seq", "fields": FIELDS, "static": STATIC}
    return export_table(tmp_path_factory.mktemp("static"), events(), {"bidirectional": False}, **options)


@pytest.fixture(scope="module")
def unordered(tmp_path_factory) -> Classifier:
    options = {"group_by": "card", "fields": FIELDS, "static": STATIC}
    return export_table(tmp_path_factory.mktemp("unordered"), events(), {"bidirectional": False}, **options)


def sequences(**changes):
    """A dict of lists for each sequence, whose static values are given once, under the names of the columns."""
    table = pd.DataFrame(events(1))
    rows = []
    for _, group in table.groupby("card"):
        of_tokens = {name: group[name].tolist() for name in ("seq", "shop", "amount")}
        first = group.iloc[0]
        height = None if pd.isna(first["height"]) else float(first["height"])
        rows.append({**of_tokens, "country": first["country"], "age": int(first["age"]), "height": height, **changes})
    return rows


def probabilities(predictions):
    assert not [row["error"] for row in predictions if row["error"]]
    return np.array([row["probabilities"]["a"] for row in predictions])


def error(classifier, **changes):
    return classifier.predict([sequences(**changes)[1]])[0]["error"]


def as_given(form, row):
    length = len(row["shop"])
    static = {name: row.pop(name) for name in ("country", "age", "height")}
    if form == "field names":
        static["home"] = static.pop("country")
    forms = {
        "each event": lambda value: [value] * length,
        "some events": lambda value: [None, value, *[None] * (length - 2)],
        "list of one": lambda value: [value],
        "array": lambda value: np.array([value] * length),
        "series": lambda value: pd.Series([value] * length),
    }
    return {**row, **{name: forms.get(form, lambda value: value)(value) for name, value in static.items()}}


FORMS = ["once", "field names", "each event", "some events", "list of one", "array", "series"]


@pytest.mark.parametrize("form", FORMS)
def test_python_rows_give_static_values_in_any_form(classifier, form):
    expected = probabilities(classifier.predict(sequences()))
    rows = [as_given(form, row) for row in sequences()]
    np.testing.assert_allclose(probabilities(classifier.predict(rows)), expected, atol=1e-6)


def test_files_tables_frames_and_events_as_dicts_are_predicted_as_python_rows(classifier, tmp_path):
    expected = probabilities(classifier.predict(sequences()))
    table = pa.table(events(1)).drop(["label"])
    pq.write_table(table, tmp_path / "rows.parquet")
    source = classifier.predict(pq.read_table(tmp_path / "rows.parquet"))
    for found in (source.to_pandas(), classifier.predict(table.to_pandas())):
        np.testing.assert_allclose(found.sort_values("card")["probability_a"], expected, atol=1e-6)
    dicts = [group.drop(columns="card").to_dict("records") for _, group in table.to_pandas().groupby("card")]
    np.testing.assert_allclose(probabilities(classifier.predict(dicts)), expected, atol=1e-6)


def test_static_values_change_the_prediction_whatever_the_tokens(classifier):
    row = sequences()[1]
    changed = [row, {**row, "country": "c3" if row["country"] != "c3" else "c0"}, {**row, "age": row["age"] + 40}]
    assert len(set(np.round(probabilities(classifier.predict(changed)), 7))) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"age": None},
            "age is missing or of another type than in training (set data.static.age.missing=mean if values",
        ),
        ({"age": float("nan")}, "age is missing"),
        ({"age": "old"}, "age is not a single number"),
        ({"country": {"a": 1}}, "home is not a single category"),
        ({"country": ["c1", "c2", "c1", "c1"]}, "country changes within the sequence (c1, c2); a static field has one"),
        ({"country": []}, "country has no"),
    ],
)
def test_bad_static_values_are_an_error_of_their_row_alone(classifier, changes, message):
    assert message in error(classifier, **changes)
    good, bad = sequences()[0], sequences(**changes)[1]
    assert [row["error"] is None for row in classifier.predict([good, bad, good])] == [True, False, True]


def test_a_row_without_a_static_field_and_a_file_without_its_column(classifier):
    row = {name: value for name, value in sequences()[0].items() if name != "age"}
    assert classifier.predict([row])[0]["error"].startswith("has no field age")
    with pytest.raises(InputError, match=r"no column 'age' \(static field age of the bundle\)"):
        classifier.predict(pa.table(events(1)).drop(["age"]))


def test_a_sequence_of_a_file_whose_static_value_changes_is_refused_alone(classifier):
    table = events(1)
    table["country"][5] = "elsewhere"
    found = classifier.predict(pa.table(table)).to_pandas().sort_values("card")
    assert found["error"].notna().tolist() == [card == 1 for card in range(SEQUENCES)]
    assert "changes within the sequence" in found["error"].iloc[1]


def test_a_value_that_may_be_missing_is_its_mean_and_a_category_of_another_name_is_unknown(classifier):
    row = sequences()[1]
    found = classifier.predict([{**row, "height": None}, {**row, "height": float("nan")}, {**row, "country": "new"}])
    assert found[0]["probability"] == found[1]["probability"]
    assert found[0]["unknown"] == 0 and found[2]["unknown"] > 0 and found[2]["error"] is None


def test_the_manifest_and_the_model_have_inputs_without_an_axis_of_tokens(classifier):
    inputs = json.loads((classifier.folder / "manifest.json").read_text())["inputs"]
    # A value that may be missing has a mask.
    assert {name: inputs[name] for name in STATIC} == {"home": ["batch"], "age": ["batch", 1], "height": ["batch", 2]}
    assert inputs["shop"] == ["batch", "time"] and inputs["amount"] == ["batch", "time", 1]


# Streams


@pytest.mark.parametrize("name", ["classifier", "unordered"])
@pytest.mark.parametrize("step", [1, 3])
def test_a_stream_gets_static_values_with_the_first_tokens(name, step, request):
    classifier = request.getfixturevalue(name)
    rows = [{**row, "seq": sorted(row["seq"])} for row in sequences()]
    if name == "unordered":
        rows = [{key: value for key, value in row.items() if key != "seq"} for row in rows]
    expected = probabilities(classifier.predict(rows))
    stream = classifier.stream()
    for start in range(0, LENGTH, step):
        parts = {
            key: {
                column: values[start : start + step] if isinstance(values, list) else values
                for column, values in row.items()
                if isinstance(values, list) or start == 0
            }
            for key, row in enumerate(rows)
        }
        found = stream.read(parts)
    np.testing.assert_allclose(probabilities([found[key] for key in range(len(rows))]), expected, atol=1e-6)


def test_a_static_value_of_a_stream_may_be_repeated_and_not_changed(unordered):
    stream = unordered.stream()
    tokens = {"shop": ["s1"], "amount": [2.0]}
    static = {"country": "c1", "age": 30, "height": 170.0}
    assert stream.read({"a": tokens})["a"]["error"].startswith("has no field home")
    assert len(stream) == 0
    assert stream.read({"a": {**tokens, **static}})["a"]["tokens"] == 1
    assert stream.read({"a": {**tokens, "country": ["c1"]}})["a"]["tokens"] == 2
    changed = stream.read({"a": {**tokens, "country": "c2"}, "b": {**tokens, **static}})
    assert changed["a"]["error"] == "home changes from c1 to c2, and is a static field"
    assert changed["a"]["tokens"] == 2 and changed["b"]["error"] is None
    stream.close("a")
    assert stream.read({"a": {**tokens, **static, "country": "c2"}})["a"]["error"] is None


# Explanations


def test_the_contribution_of_a_static_field_is_what_its_value_adds(classifier):
    row = sequences()[1]
    explained = classifier.explain([row])[0]
    assert explained["contributions_of_static"].keys() == {"home", "age", "height"}
    assert explained["contributions_by_field"].keys() == FIELDS.keys()

    def log_odds(found):
        share = found["probabilities"][explained["prediction"]]
        return np.log(share / (1 - share))

    # An unknown country is the neutral value. Training never saw one, so its id is that of any other unknown value.
    whole, without = classifier.predict([row, {**row, "country": "elsewhere"}])
    expected = log_odds(whole) - log_odds(without)
    assert explained["contributions_of_static"]["home"] == pytest.approx(expected, abs=1e-4)


def test_explained_tables_have_a_column_for_each_static_field(classifier, tmp_path):
    pq.write_table(pa.table(events(1)), tmp_path / "rows.parquet")
    rows = sequences()
    found = classifier.explain(pa.table(events(1))).to_pandas()
    names = [f"contribution_{name}" for name in STATIC]
    assert set(names) < set(found.columns)
    assert (found.groupby("id")[names].nunique() == 1).all().all()
    of_row = found[found["id"] == 1].iloc[0]
    expected = classifier.explain([rows[1]])[0]["contributions_of_static"]
    for name in STATIC:
        assert of_row[f"contribution_{name}"] == pytest.approx(expected[name], abs=1e-5)
