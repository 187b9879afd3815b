"""The table of predictions: columns, refused rows, ids, and the guard against formulas."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.bundle.predictions import Predictions, predictions_schema, predictions_table

CLASSES = ["calm", "wild life"]
LABELS = pa.array(CLASSES)


def predictions(probabilities, predicted, errors):
    lengths = np.where(np.array(predicted) < 0, 0, 5)
    strange = {"far": np.array([2.5, 0, 12], np.float32)}
    return Predictions(
        np.log(probabilities), np.array(probabilities), np.array(predicted), lengths, lengths, errors, {}, strange
    )


# The second row is refused, and the third is predicted by a threshold below 0.5.
PREDICTIONS = predictions([[0.25, 0.75], [np.nan, np.nan], [0.6, 0.4]], [1, -1, 1], [None, "events is empty", None])


@pytest.mark.parametrize("id_type", [None, pa.string(), pa.int32()])
def test_the_columns_are_id_prediction_probabilities_and_error(id_type):
    schema = predictions_schema(CLASSES, pa.string(), id_type, strange=["unknown", "far"])
    assert schema.names == [
        "id",
        "prediction",
        "probability",
        "probability_calm",
        "probability_wild life",
        "unknown",
        "far",
        "error",
    ]
    assert schema.field("id").type == (id_type or pa.int64())
    assert schema.field("prediction").type == pa.string()
    assert {schema.field(name).type for name in schema.names if name.startswith("probability")} == {pa.float64()}


def test_rows_keep_their_order_and_refused_rows_are_null():
    rows = predictions_table(PREDICTIONS, CLASSES, LABELS, pa.array([8, 9, 10])).to_pylist()
    assert rows[0] == {
        "id": 8,
        "prediction": "wild life",
        "probability": 0.75,
        "probability_calm": 0.25,
        "probability_wild life": 0.75,
        "far": 2.5,
        "error": None,
    }
    refused = dict.fromkeys(rows[0]) | {"id": 9, "error": "events is empty"}
    assert rows[1] == refused
    assert rows[2]["prediction"] == "wild life", "the label is that of the decision, not the most probable one"
    assert rows[2]["probability"] == 0.4


@pytest.mark.parametrize("ids", [pa.array(["a", "b", None]), pa.array([7, 7, 5], pa.int32())])
def test_ids_of_the_input_are_kept(ids):
    table = predictions_table(PREDICTIONS, CLASSES, LABELS, ids)
    assert table.schema == predictions_schema(CLASSES, pa.string(), ids.type, strange=["far"])
    assert table.column("id").equals(ids)
