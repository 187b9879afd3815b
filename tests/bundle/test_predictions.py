"""Predictions as a table."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.bundle.predictions import guard_formulas, predictions_schema, predictions_table
from seqclf.bundle.runtime import Predictions

CLASSES = ["calm", "wild life"]


def predictions(probabilities, chosen, errors):
    lengths = np.where(np.array(chosen) < 0, 0, 5)
    return Predictions(np.log(probabilities), np.array(probabilities), np.array(chosen), lengths, errors)


FOUND = predictions([[0.25, 0.75], [np.nan, np.nan], [0.6, 0.4]], [1, -1, 1], [None, "events is empty", None])


@pytest.mark.parametrize("kind", [None, pa.string(), pa.int32()])
def test_the_columns_are_id_prediction_probabilities_and_error(kind):
    schema = predictions_schema(CLASSES, kind)
    assert schema.names == [
        "id",
        "prediction",
        "probability",
        "probability_calm",
        "probability_wild life",
        "error",
    ]
    assert schema.field("id").type == (kind or pa.int64())
    assert schema.field("prediction").type == pa.string()
    assert {schema.field(name).type for name in schema.names if name.startswith("probability")} == {pa.float64()}


def test_rows_keep_their_order_and_refused_ones_are_null():
    rows = predictions_table(FOUND, CLASSES, None, 8).to_pylist()
    assert rows[0] == {
        "id": 8,
        "prediction": "wild life",
        "probability": 0.75,
        "probability_calm": 0.25,
        "probability_wild life": 0.75,
        "error": None,
    }
    refused = dict.fromkeys(rows[0]) | {"id": 9, "error": "events is empty"}
    assert rows[1] == refused
    assert rows[2]["prediction"] == "wild life", "what was decided, and not the most probable"
    assert rows[2]["probability"] == 0.4


@pytest.mark.parametrize("ids", [pa.array(["a", "b", None]), pa.array([7, 7, 5], pa.int32())])
def test_given_ids_are_carried_through(ids):
    table = predictions_table(FOUND, CLASSES, ids, 1)
    assert table.schema == predictions_schema(CLASSES, ids.type)
    assert table.column("id").equals(ids)


def test_all_refused():
    table = predictions_table(predictions([[np.nan] * 2] * 2, [-1, -1], ["bad", "worse"]), CLASSES, None, 1)
    assert table.column("prediction").null_count == table.column("probability").null_count == 2


def test_a_guarded_table_holds_no_formula_and_its_numbers_stay():
    table = pa.record_batch({"id": ["=1+1", "-a", "\t@b", "c=d", None], "probability": [-0.5, 1e-9, 0.0, 1.0, None]})
    safe = guard_formulas(table)
    assert safe.column("id").to_pylist() == ["'=1+1", "'-a", "'\t@b", "c=d", None]
    assert safe.column("probability").equals(table.column("probability")) and safe.schema == table.schema
