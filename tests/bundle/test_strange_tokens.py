"""Values that training did not have, and numbers far from those of training, are counted and warned of."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_files import write
from support.untrained_task import export_table

from seqclf.commands.predict import predict_file

FIELDS = {"shop": "category", "amount": "number"}


def columns(shops, factor=1.0):
    generator = np.random.default_rng(0)
    rows = [generator.choice(shops, 5).tolist() for _ in range(40)]
    amounts = [(factor * generator.normal(3, 1, 5)).tolist() for _ in range(40)]
    return {"shop": rows, "amount": amounts, "y": ["a", "b"] * 20}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strange")
    return export_table(folder, columns(["s", "t", "u"]), label="y", fields=FIELDS)


@pytest.mark.parametrize(
    ("shops", "factor", "unknown", "far"),
    [(["s", "t"], 1.0, 0.0, 0.0), (["S", "T"], 1.0, 1.0, 0.0), (["s", "t"], 100.0, 0.0, 1.0)],
)
def test_the_result_of_a_file_has_the_shares(classifier, tmp_path, capsys, shops, factor, unknown, far):
    path = write(tmp_path / "new.parquet", columns(shops, factor))
    keys = {"input": path, "output": tmp_path / "out.parquet", "engine": "local"}
    result = predict_file(classifier, SimpleNamespace(**keys))
    assert (result.unknown_share, result.far_share) == (unknown, pytest.approx(far, abs=0.02))
    assert ("warning" in capsys.readouterr().err) is bool(unknown or far)


def test_each_row_says_what_is_strange_in_it(classifier):
    good = {"shop": ["s", "t"], "amount": [3.0, 3.0]}
    strange = {"shop": ["s", "S", "S", "T"], "amount": [3.0, 3.0, 3.0, 53.0]}
    rows = [good, strange, {"shop": [], "amount": []}]
    usual, odd, refused = classifier.predict(rows)
    mean, deviation = (float(values[0, 0]) for values in vars(classifier.encoders["amount"].scales).values())
    assert usual["unknown"] == 0.0 and odd["unknown"] == 0.75
    assert odd["far"] == pytest.approx((53 - mean) / deviation, rel=1e-5)
    assert refused["error"] is not None and refused["unknown"] is None and refused["far"] is None
    (explained,) = classifier.explain([strange])
    assert (explained["unknown"], explained["far"]) == (odd["unknown"], odd["far"])


def test_the_output_of_a_table_and_of_a_file_has_the_same_columns(classifier, tmp_path):
    table = pa.table(columns(["s", "S"]))
    found = classifier.predict(table)
    assert found.column_names[-3:] == ["unknown", "far", "error"] and found.schema.field("far").type == pa.float32()
    expected = [sum(shop == "S" for shop in row) / 5 for row in table["shop"].to_pylist()]
    np.testing.assert_allclose(found["unknown"], np.float32(expected))
    output = tmp_path / "out.parquet"
    keys = {"input": write(tmp_path / "new.parquet", table.to_pydict()), "output": output, "engine": "local"}
    predict_file(classifier, SimpleNamespace(**keys))
    assert pq.read_table(output).drop(["id"]).equals(found)
    none = classifier.predict(table.slice(0, 0))
    assert none.schema.equals(found.schema) and len(none) == 0
