"""Parquet files of one source are read with types that hold the values of all of them."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

MOMENT = datetime(2020, 1, 2, 3)


def cells(folder, *columns):
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"x": column}), folder / f"{number}.parquet")
    with SourceReader(Source(f"{folder}/*.parquet", "data.train")) as reader:
        return reader.select({"x": "x"})["x"].to_pylist()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.array([60]), pa.array([60.75]), [60.0, 60.75]),
        (pa.array([1, 0]), pa.array([0.4, 1.6]), [1.0, 0.0, 0.4, 1.6]),
        (pa.array([7], pa.int8()), pa.array([300], pa.int64()), [7, 300]),
        (pa.array([7], pa.int16()), pa.array([0.25], pa.float32()), [7.0, 0.25]),
        (pa.array([7]), pa.array([Decimal("1.25")]), [Decimal("7.00"), Decimal("1.25")]),
        (pa.array([[1, 2]]), pa.array([[1.5]]), [[1.0, 2.0], [1.5]]),
        (pa.nulls(1), pa.array(["007"]), [None, "007"]),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.large_string()), ["a", "b"]),
    ],
)
def test_values_do_not_depend_on_the_order_of_the_files(tmp_path, first, second, expected):
    assert cells(tmp_path, first, second) == expected
    backwards = expected[len(first) :] + expected[: len(first)]
    assert cells(tmp_path, second, first) == backwards


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([7]), pa.array(["007"])),
        (pa.array([True]), pa.array([1])),
        (pa.array([date(2020, 1, 2)]), pa.array([MOMENT])),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), pa.array([MOMENT])),
        (pa.array([1.5]), pa.array([[1.5]])),
        (pa.array([2**53 + 1]), pa.array([0.5])),
        (pa.array([2**24 + 1]), pa.array([0.5], pa.float32())),
    ],
)
def test_types_that_no_type_can_hold_are_refused_in_either_order(tmp_path, first, second):
    for columns in ((first, second), (second, first)):
        with pytest.raises(InputError, match=r"(column|Field) x ") as caught:
            cells(tmp_path, *columns)
        assert str(tmp_path) in caught.value.where and caught.value.remedy == "write the column with one type"


def test_files_of_different_columns_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "z.parquet")
    with pytest.raises(InputError, match="has no column y") as caught:
        cells(tmp_path, pa.array([1]))
    assert caught.value.where == str(tmp_path / "0.parquet")
