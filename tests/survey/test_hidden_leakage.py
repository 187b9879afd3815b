"""Columns that reveal the label by being there, in one class or as lists; and labels that look alike."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.reading.sources import Source
from seqclf.survey.survey import _label_warnings
from seqclf.survey.target_leakage import score_column_leakage

ROWS = 400


def leaks(folder, labels, **columns):
    pq.write_table(pa.table({"label": labels, **columns}), folder / "train.parquet")
    found = score_column_leakage(Source(str(folder / "train.parquet"), "train"), "label", set())
    return {leakage.column for leakage in found if leakage.revealing}


TEN = [f"k{row % 10}" for row in range(ROWS)]
TWO = [f"k{row % 2}" for row in range(ROWS)]
DAY = datetime.date(2024, 1, 1)
CASES = {
    "a date that only positives have": (
        TWO,
        [DAY + datetime.timedelta(row) if row % 2 else None for row in range(ROWS)],
    ),
    "an id of one class of ten": (TEN, [None if row % 10 else f"case {row}" for row in range(ROWS)]),
    "a list": (TWO, [["refund"] if row % 2 else ["sale"] for row in range(ROWS)]),
    "a map": (TWO, pa.array([[("paid", row % 2)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64()))),
    "a list of structs": (TWO, [[{"kind": "ab"[row % 2]}] for row in range(ROWS)]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_column_that_reveals_the_label_is_found(tmp_path, case):
    labels, column = CASES[case]
    assert leaks(tmp_path, labels, column=column, noise=np.random.default_rng(0).random(ROWS)) == {
        "kind" if case == "a list of structs" else "column"
    }


def test_the_part_of_a_struct_that_reveals_the_label_is_named(tmp_path):
    visits = [{"note": f"x{row}", "outcome": None if row == 4 else {"dead": row % 2}} for row in range(ROWS)]
    assert leaks(tmp_path, TWO, visit=visits) == {"visit.outcome.dead"}


@pytest.mark.slow
def test_the_last_of_many_columns_is_looked_at(tmp_path):
    noise = np.random.default_rng(0).random((60, ROWS))
    columns = {f"noise {number}": values for number, values in enumerate(noise)}
    assert leaks(tmp_path, TWO, **columns, outcome=[row % 2 for row in range(ROWS)]) == {"outcome"}


def test_columns_that_say_nothing_do_not_reveal_the_label(tmp_path):
    columns = {"day": [DAY + datetime.timedelta(row) for row in range(ROWS)], "key": [f"x{row}" for row in range(ROWS)]}
    assert leaks(tmp_path, TEN, **columns, tags=[[row % 7] for row in range(ROWS)]) == set()


def test_labels_that_look_alike_are_named_with_their_spaces():
    lines = list(_label_warnings(["Fraud", " fraud", "nan", "caf\u00e9", "cafe\u0301", "b"]))
    assert len(lines) == 3 and "'nan'" in lines[0] and "'Fraud', ' fraud'" in lines[1] and "e\\u0301" in lines[2]
