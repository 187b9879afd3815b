"""Predictions of tables in memory: those of the rows one by one, in the library of the table."""

import gzip
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import export_table

from seqclf.bundle import model
from seqclf.commands.predict import predict_file
from seqclf.errors import InputError

KINDS = ["events", "text", "position", "visits", "card"]


def table_of(kind, sequences):
    return pa.Table.from_pylist(sequences) if kind == "card" else pa.table({kind: sequences})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "reader"])
def test_a_table_gives_the_predictions_of_its_rows(exported, classifier, kind, library, monkeypatch):
    monkeypatch.setattr(model, "WINDOW_ROWS", 7)
    sequences, loaded = exported(kind).sequences, classifier(kind)
    table = table_of(kind, sequences)
    convert = {"pandas": pa.Table.to_pandas, "polars": pl.from_arrow, "arrow": lambda table: table}
    data = table.to_reader(9) if library == "reader" else convert[library](table)
    predictions = loaded.predict(data)
    rows = loaded.predict(sequences)
    as_arrow = predictions.read_all() if library == "reader" else pa.table(predictions)
    names = ["prediction", "probability", *(f"probability_{label}" for label in loaded.classes)]
    strange = loaded.strange.names
    names += [*strange, "error"]
    assert as_arrow.column_names[: len(names)] == names
    assert as_arrow.column("prediction").to_pylist() == [row["prediction"] for row in rows]
    expected = [list(row["probabilities"].values()) for row in rows]
    np.testing.assert_allclose(np.stack([as_arrow.column(name) for name in names[2:5]], 1), expected, atol=1e-6)
    for name in strange:
        assert as_arrow.column(name).to_pylist() == [row[name] for row in rows]
    if library != "reader":
        assert type(predictions) is type(data)
        np.testing.assert_allclose(loaded.predict_proba(data), expected, atol=1e-6)
    np.testing.assert_allclose(loaded.predict_proba(sequences), expected, atol=1e-6)


def test_a_pandas_frame_keeps_its_index_and_refused_rows(classifier):
    frame = pd.DataFrame({"events": [[1, 2], None, []], "other": [object()] * 3}, index=[7, 7, 9])
    predictions = classifier("events").predict(frame)
    assert predictions.index.tolist() == [7, 7, 9] and "id" not in predictions
    assert predictions["error"].notna().tolist() == [False, True, True]
    assert np.isnan(classifier("events").predict_proba(frame)).any(axis=1).tolist() == [False, True, True]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_table_without_rows_has_the_same_columns(classifier, rows):
    frame = pd.DataFrame({"text": ["rain"] * rows})
    predictions = classifier("text").predict(frame)
    assert list(predictions) == [
        "prediction",
        "probability",
        *(f"probability_k{n}" for n in range(3)),
        "unknown",
        "error",
    ]
    assert len(predictions) == rows and classifier("text").predict_proba(frame).shape == (rows, 3)


@pytest.mark.parametrize(
    "data", [pd.DataFrame({"event": [[1]]}), pl.DataFrame({"event": [[1]]})], ids=["pandas", "polars"]
)
def test_a_table_without_a_needed_column_names_it(classifier, data):
    expected = r"^data: no column 'events' \(field events of the bundle\); did you mean 'event'"
    for method in (classifier("events").predict, classifier("events").predict_proba):
        with pytest.raises(InputError, match=expected):
            method(data)
    with pytest.raises(InputError, match=r"its columns are other, more"):
        classifier("events").predict(pa.table({"other": [1], "more": [2]}))


@pytest.mark.parametrize("data", ["green house", 5])
def test_a_single_value_is_refused(classifier, data):
    for method in (classifier("text").predict, classifier("text").predict_proba):
        with pytest.raises(InputError, match=re.escape(f"got {type(data).__name__}, which is not a table")):
            method(data)


@pytest.mark.parametrize(
    "column", [pd.Series, pl.Series, pa.array, np.array, tuple, iter], ids=lambda kind: kind.__name__
)
def test_a_column_is_a_list_of_rows(classifier, column):
    rows = ["green house", "rain"]
    assert classifier("text").predict(column(rows)) == classifier("text").predict(rows)


def test_one_mapping_is_one_row(exported, classifier):
    row = exported("card").sequences[0]
    assert classifier("card").predict(row) == classifier("card").predict([row])[0]
    assert classifier("card").predict_proba(row).shape == (1, 3)
    assert classifier("card").predict({**row, "label": "k1"}) == classifier("card").predict(row), "the label is known"
    assert classifier("card").predict({**row, "shops": [], 3: None}) == classifier("card").predict(row), "as a file"


def test_rows_that_are_all_rejected_are_an_error(classifier):
    assert classifier("text").predict([3])[0]["error"]
    for rows in ([3, 4], pd.DataFrame({"text": [None, None]})):
        with pytest.raises(InputError, match="all 2 rows are rejected"):
            classifier("text").predict(rows)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """Classifier of an event table with the columns `the amount` and `at`, grouped by `card`."""
    folder = tmp_path_factory.mktemp("grouped")
    generator = np.random.default_rng(0)
    cards = np.repeat([f"c{card:02}" for card in range(30)], 4)
    events = pa.table(
        {
            "card": cards,
            "at": generator.permutation(120),
            "the amount": generator.lognormal(size=120),
            "label": ["odd" if int(card[-1]) % 2 else "even" for card in cards],
        }
    )
    fields = {"amount": {"kind": "number", "column": "the amount"}}
    return export_table(folder, events, group_by="card", order_by="at", fields=fields), events


def test_a_table_of_events_gives_a_row_per_group(grouped):
    classifier, events = grouped
    shuffled = events.take(np.random.default_rng(1).permutation(len(events)))
    predictions = classifier.predict(shuffled.to_pandas())
    assert predictions["card"].tolist() == [f"c{card:02}" for card in range(30)]
    ordered = events.sort_by([("card", "ascending"), ("at", "ascending")]).column("the amount").to_pylist()
    rows = classifier.predict([{"amount": ordered[start : start + 4], "card": "c"} for start in range(0, 120, 4)])
    assert predictions["prediction"].tolist() == [row["prediction"] for row in rows]
    np.testing.assert_allclose(predictions["probability"], [row["probability"] for row in rows], atol=1e-6)


def test_columns_may_be_named_as_the_fields(grouped):
    classifier, events = grouped
    renamed = events.rename_columns(["card", "at", "amount", "label"])
    assert classifier.predict(renamed).equals(classifier.predict(events))
    assert classifier.predict({"the amount": [1.0, 2.0]}) == classifier.predict({"amount": [1.0, 2.0]})


def test_the_key_of_a_group_may_be_the_index(grouped):
    classifier, events = grouped
    frame = events.to_pandas()
    assert classifier.predict(frame.set_index("card")).equals(classifier.predict(frame))


def test_a_classifier_says_what_it_takes_and_predicts(grouped, classifier):
    text = repr(grouped[0])
    assert "amount (number, column 'the amount')" in text and "classes even, odd" in text and "bundle" in text
    assert repr(classifier("alerts")).endswith("predicts k1 from a probability of 0.4)")
    assert classifier("events").classes_.tolist() == ["k0", "k1", "k2"]


def test_a_row_of_a_pandas_frame_is_one_row(classifier):
    frame = pd.DataFrame({"events": [[1, 2], [3]], "other": ["a", "b"]})
    loaded = classifier("events")
    assert loaded.predict(frame.iloc[1]) == loaded.predict([[3]])[0]
    np.testing.assert_array_equal(loaded.predict_proba(frame.iloc[1]), loaded.predict_proba([[3]]))


def test_a_sequence_may_be_a_frame_or_a_series(classifier):
    vectors = np.random.default_rng(0).normal(size=(3, 2))
    frames = [vectors.tolist(), pd.DataFrame(vectors), pl.DataFrame(vectors)]
    first, *others = classifier("position").predict(frames)
    assert first["error"] is None and others == [first, first]
    events = classifier("events")
    assert events.predict([pd.Series([1, 2]), pl.Series([1, 2])]) == events.predict([[1, 2]]) * 2


def test_a_file_is_predicted_as_its_table(exported, classifier, tmp_path):
    loaded, table = classifier("events"), table_of("events", exported("events").sequences)
    pq.write_table(table, tmp_path / "new.parquet")
    of_table = loaded.predict(table)
    for given in (tmp_path / "new.parquet", str(tmp_path / "new.parquet"), str(tmp_path / "*.parquet")):
        of_file = loaded.predict(given)
        assert of_file.column_names == ["id", *of_table.column_names] and of_file.drop_columns("id").equals(of_table)
    assert (loaded.predict_proba(tmp_path / "new.parquet") == loaded.predict_proba(table)).all()
    assert loaded.explain(str(tmp_path / "new.parquet")).equals(loaded.explain(table))
    with pytest.raises(InputError, match=r"missing\.parquet"):
        loaded.predict(str(tmp_path / "missing.parquet"))
    with pytest.raises(InputError, match=r"write \[sequence\]"):
        loaded.predict("no file")


@pytest.mark.parametrize("explain", [None, False])
@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.jsonl", "new.jsonl.gz", "new.json"])
@pytest.mark.parametrize("form", ["events", "rows"])
def test_a_file_without_rows_has_the_columns_of_one_with_rows(
    grouped, exported, classifier, tmp_path, form, name, explain
):
    loaded, table = (
        grouped if form == "events" else (classifier("card"), pa.Table.from_pylist(exported("card").sequences))
    )
    pq.write_table(table, tmp_path / "full.parquet")
    path = tmp_path / name
    if name == "new.parquet":
        pq.write_table(table[:0], path)
    else:
        content = {"new.csv": ",".join(table.column_names) + "\n", "new.json": "[]"}.get(name, "\n").encode()
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    outputs = {}
    for source in ("full.parquet", name):
        keys = {"input": str(tmp_path / source), "output": f"{tmp_path}/{source}.out.parquet", "engine": "local"}
        result = predict_file(loaded, SimpleNamespace(**keys), explain)
        outputs[source] = pq.read_table(keys["output"])
    assert (result.rows, result.refused, outputs[name].num_rows) == (0, 0, 0)
    names = outputs["full.parquet"].schema
    assert outputs[name].schema.names == names.names
    if name in ("new.parquet", "new.csv"):
        assert outputs[name].schema.equals(names)
    in_memory = loaded.predict(path) if explain is None else loaded.explain(path, by_field=explain)
    assert in_memory.num_rows == 0 and in_memory.schema.types == outputs[name].schema.types


@pytest.mark.parametrize("types", [{}, {"events": "float64"}])
def test_a_frame_without_rows_may_have_any_types(classifier, types):
    frame = pd.DataFrame({"events": []}, dtype=object).astype(types)
    assert len(classifier("events").predict(frame)) == len(classifier("events").explain(frame)) == 0


def test_an_empty_text_file_is_not_without_rows_but_without_names(classifier, tmp_path):
    (tmp_path / "new.csv").write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        classifier("events").predict(tmp_path / "new.csv")
