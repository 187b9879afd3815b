"""Values that training did not have, and numbers far from those of training, are counted and warned of."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.table_files import write
from support.untrained_task import export_table

from seqclf.bundle.predictions import count_strange
from seqclf.predict import predict_file

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


def test_a_token_counts_once():
    specs = [
        {"name": "a", "kind": "category", "size": 9},
        {"name": "n", "kind": "number", "width": 2, "scaled": [True, False]},
    ]
    fields = {"a": np.array([0, 1, 0]), "n": np.array([[11.0, 0], [0, 99], [-12, 0]], np.float32)}
    assert count_strange(specs, fields) == (2, 2)
