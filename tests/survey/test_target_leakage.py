"""Columns that give the label away are named, and harmless ones are not."""

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.reading.sources import Source
from seqclf.survey.target_leakage import score_column_leakage


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
def test_outcomes_leak_the_target_and_ages_do_not(table, kind):
    columns, folder = table
    source = Source(str(write(folder / f"t.{kind}", columns)), "data.train")
    leakages = score_column_leakage(source, "dead", {"id", "x"})
    assert {leakage.column for leakage in leakages if leakage.revealing} == {"survival", "outcome"}
    assert {"id", "dead", "note"}.isdisjoint(leakage.column for leakage in leakages)
    assert all(leakage.auroc < 0.7 for leakage in leakages if leakage.column in ("age", "stay"))
