"""Columns that give the label away are named; harmless ones are not."""

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.reading.sources import Source
from seqclf.survey.target_leakage import revealing_columns


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    dead = generator.random(400) < 0.2
    stay = generator.integers(1, 30, 400)
    columns = {
        "id": [f"p{row}" for row in range(400)],
        "x": [[1, 2]] * 400,
        "dead": dead.astype(int).tolist(),
        "survival": np.where(dead, generator.integers(1, 20, 400), -1).tolist(),
        "outcome": np.where(dead, "lost", "saved").tolist(),
        "age": generator.integers(20, 90, 400).tolist(),
        "note": [f"text {value}" for value in generator.integers(0, 10**6, 400)],
        "stay": stay.tolist(),
    }
    return columns, tmp_path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_outcomes_are_revealing_and_ages_are_not(table, kind):
    columns, folder = table
    found = revealing_columns(Source(str(write(folder / f"t.{kind}", columns)), "data.train"), "dead", {"id", "x"})
    assert {entry["column"] for entry in found if entry["revealing"]} == {"survival", "outcome"}
    assert {"id", "dead", "note"}.isdisjoint(entry["column"] for entry in found)
    assert all(entry["auroc"] < 0.7 for entry in found if entry["column"] in ("age", "stay"))


def test_a_column_that_tells_only_beside_another_is_named_with_it(tmp_path):
    """Who dies during the stay: days of survival alone tell much, with the days of the stay all."""
    generator = np.random.default_rng(1)
    survival = np.where(generator.random(2000) < 0.4, generator.integers(1, 40, 2000), -1)
    stay = generator.integers(20, 40, 2000)
    dead = (survival > 0) & (survival <= stay)
    columns = {"dead": dead.astype(int).tolist(), "survival": survival.tolist(), "stay": stay.tolist()}
    found = revealing_columns(Source(str(write(tmp_path / "t.csv", columns)), "data.train"), "dead", set())
    by_name = {entry["column"]: entry for entry in found}
    assert by_name["survival"]["revealing"] and "beside" not in by_name["survival"]
    assert by_name["stay"]["beside"] == "survival" and by_name["stay"]["auroc_together"] > 0.99


@pytest.mark.parametrize("labels", [["a"] * 20, ["a"] * 18 + ["b"] * 2, [None] * 20])
def test_too_few_rows_of_a_class_say_nothing(tmp_path, labels):
    path = write(tmp_path / "t.csv", {"y": labels, "z": list(range(20))})
    assert revealing_columns(Source(str(path), "data.train"), "y", set()) == []
