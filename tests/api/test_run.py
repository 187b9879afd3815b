"""A finished run: metrics, predictions, and the report in a notebook."""

import html
import pickle
import re

import duckdb
import numpy as np
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.doc_pages import DOCS, blocks

import seqclf
from seqclf import InputError

from .conftest import make_frame


def test_a_run_is_opened_by_its_folder(run, frame):
    opened = seqclf.Run(str(run.folder))
    assert opened.metrics == run.metrics and opened.bundle == run.folder / "bundle"
    np.testing.assert_array_equal(opened.predict_proba(frame), run.predict_proba(frame))
    twin = pickle.loads(pickle.dumps(opened))  # holds the classifier by now
    assert twin.predict_proba(frame[:3]).tolist() == run.predict_proba(frame[:3]).tolist()


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}: holds no run")):
        seqclf.Run(tmp_path)


def test_predictions_are_those_of_the_bundle(run):
    new = make_frame(9, seed=2).drop(columns="label")
    predictions = run.predict(new)
    assert predictions.index.equals(new.index) and predictions["card"].tolist() == new["card"].tolist()
    probabilities = run.predict_proba(pl.from_pandas(new))
    by_column = predictions[[f"probability_{label}" for label in run.classifier.classes_]].to_numpy()
    np.testing.assert_array_equal(by_column, probabilities)
    assert run.predict({"shops": ["food"], "amounts": [1.0]})["prediction"] in ("fraud", "fair")


def test_a_notebook_shows_the_report_in_a_frame(run):
    shown = run._repr_html_()
    (page,) = re.findall(r'srcdoc="([^"]*)"', shown)
    report = run.report.read_text(encoding="utf-8")
    assert html.unescape(page).replace('<base href="about:srcdoc">', "") == report
    assert "<base" in html.unescape(page), "links to headings stay in the frame"
    assert re.search(r"height: \d+px", shown) and shown.count("<iframe") == shown.count("</iframe>") == 1


def test_the_predictions_of_a_run_are_those_that_its_metrics_count(run):
    table = pl.from_arrow(run.predictions)
    assert dict(table.group_by("split").len().iter_rows()) == {
        split: run.metrics[split]["rows"] for split in ("validation", "test")
    }
    test = table.filter(split="test")
    assert (test["label"] == test["prediction"]).mean() == pytest.approx(run.metrics["test"]["accuracy"])
    alerts = test.filter("alert")
    assert set(alerts["prediction"]) <= {"fraud"} and len(alerts) == (test["prediction"] == "fraud").sum()
    frame = make_frame(20, seed=1)
    assert test["id"].to_list() == frame["card"].tolist() and test["label"].to_list() == frame["label"].tolist()
    np.testing.assert_allclose(test.select("^probability_.*$").to_numpy(), run.predict_proba(frame), atol=1e-4)
    for name in ("unknown", "far"):
        np.testing.assert_array_equal(test[name], run.predict(frame)[name].to_numpy(np.float32))


def test_the_suspects_of_a_run_are_rows_of_its_predictions_and_stand_in_its_report(run):
    suspects, rows = run.suspects.to_pylist(), run.predictions.to_pylist()
    assert suspects and int(run.suspects.schema.metadata[b"rows"]) == len(rows)
    of_rows = {(row["split"], row["id"]): row for row in rows}
    page = run.report.read_text(encoding="utf-8").partition('id="suspected-wrong-labels"')[2]
    for suspect in suspects:
        row = of_rows[suspect["split"], suspect["id"]]
        assert suspect["label"] == row["label"] != suspect["proposed"]
        assert suspect["probability"] == pytest.approx(row[f"probability_{suspect['proposed']}"], abs=1e-6)
    assert all(suspect["id"] in page for suspect in suspects[:20])


def test_the_documented_queries_find_false_alerts_and_weak_groups(run, tmp_path):
    path, table = tmp_path / "p.parquet", run.predictions
    wrong = pc.and_(table["alert"], pc.equal(table["label"], "fair"))
    table = table.set_column(1, "group", pc.binary_join_element_wise("g", pc.utf8_slice_codeunits(table["id"], -1), ""))
    pq.write_table(table, path)
    (block,) = [block for block in blocks(DOCS / "report.md") if "predictions.parquet" in block.text]
    queries = [part.split('"""')[0] for part in block.text.split('f"""')[1:]]
    alerts, groups = (
        duckdb.sql(query.replace("{rows}", f"'{path}'").replace("'yes'", "'fraud'")).fetchall() for query in queries
    )
    in_test = pc.equal(table["split"], "test")
    assert {row[0] for row in alerts} == set(table.filter(pc.and_(wrong, in_test))["id"].to_pylist())
    positives = table.filter(pc.and_(in_test, pc.equal(table["label"], "fraud")))
    assert sum(row[1] for row in groups) == len(positives)
    assert sum(row[1] * row[2] for row in groups) == pytest.approx(pc.sum(positives["alert"]).as_py())
    assert [row[2] for row in groups] == sorted(row[2] for row in groups)
