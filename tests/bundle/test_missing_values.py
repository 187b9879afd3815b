"""Numbers that stand for missing values, in a bundle: rows, tables and streams read them as missing."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, make_task

from seqclf.bundle.runtime import Classifier
from seqclf.data.prepare import prepare
from seqclf.runs.export import write_bundle

SENTINEL = -999.0


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing_values")
    rng = np.random.default_rng(0)
    rows = [[SENTINEL if rng.random() < 0.3 else x for x in rng.lognormal(size=6).tolist()] for _ in range(40)]
    pq.write_table(pa.table({"x": rows, "label": ["k0", "k1"] * 20}), folder / "train.parquet")
    field = {"kind": "number", "missing": "last", "missing_values": [SENTINEL]}
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), fields={"x": field}))
    write_bundle(make_task(dataset.description()), folder / "bundle", {})
    return Classifier(folder / "bundle")


ROWS = [[SENTINEL, 1.0, 2.0], [0.5, SENTINEL], [3.0, SENTINEL, SENTINEL, 0.1]]


def probabilities(classifier, rows):
    return np.array([list(row["probabilities"].values()) for row in classifier.predict(rows)])


def test_a_number_that_means_a_missing_value_is_read_as_null(classifier):
    as_null = [[None if value == SENTINEL else value for value in row] for row in ROWS]
    others = [[5.0 if value == SENTINEL else value for value in row] for row in ROWS]
    found = probabilities(classifier, [{"x": row} for row in ROWS])
    np.testing.assert_array_equal(found, probabilities(classifier, [{"x": row} for row in as_null]))
    assert np.abs(found - probabilities(classifier, [{"x": row} for row in others])).max() > 1e-4
