"""Sequences in memory are read in the order of files, by the columns of `data.order_by`."""

from collections import deque
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, export_table, make_task

from seqclf.bundle.runtime import Classifier
from seqclf.data.prepare_data import prepare
from seqclf.runs.bundle_export import write_bundle

DAYS = [f"2024-01-{day:02} 10:00:00" for day in (3, 1, 4, 2)]
ROW = {"ts": DAYS, "amount": [3.0, 1.0, 40.0, 2.0]}


def exported(folder, order_by, fields, model=None):
    random = np.random.default_rng(0)
    table = {
        "card": [card for card in range(30) for _ in range(4)],
        "seq": random.permutation(120).tolist(),
        "ts": [f"2024-01-{day:02} 10:00:00" for day in random.integers(1, 28, 120)],
        "amount": random.lognormal(size=120).tolist(),
        "kind": [f"k{kind}" for kind in random.integers(0, 5, 120)],
        "label": ["ab"[card % 2] for card in range(30) for _ in range(4)],
    }
    return export_table(folder, table, model, group_by="card", order_by=order_by, fields=fields)


@pytest.fixture(scope="module")
def by_time(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("time"), "ts", {"ts": "time", "amount": "number"})


@pytest.fixture(scope="module")
def by_number(tmp_path_factory):
    return exported(
        tmp_path_factory.mktemp("number"), "seq", {"when": {"kind": "time", "column": "ts"}, "amount": "number"}
    )


def reordered(row, order):
    return {name: [values[index] for index in order] for name, values in row.items()}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 3, 0, 2), (3, 2, 1, 0)])
def test_the_order_given_does_not_matter(by_time, order):
    table = pa.table({"card": [1] * 4, **reordered(ROW, order)})
    expected = by_time.predict(table).column("probability")[0].as_py()
    rows = [reordered(ROW, order), {name: np.array(values) for name, values in reordered(ROW, order).items()}]
    rows.append({**rows[0], "ts": [datetime.fromisoformat(day) for day in rows[0]["ts"]]})
    assert [row["probability"] for row in by_time.predict(rows)] == [expected] * 3
    assert by_time.explain([rows[0]])[0]["tokens"] == by_time.explain([reordered(ROW, (1, 3, 0, 2))])[0]["tokens"]


@pytest.mark.parametrize("container", [deque, tuple, pa.array, pd.Series, np.array])
def test_any_container_of_values_is_sorted(by_time, container):
    given = {"ts": DAYS, "amount": container(ROW["amount"])}
    assert by_time.predict([given])[0]["probability"] == by_time.predict([ROW])[0]["probability"]
    assert by_time.predict([{**ROW, "ts": np.array(5)}])[0]["prediction"] is None


def test_times_are_compared_to_the_nanosecond(by_time):
    close = np.datetime64("2024-01-01T10:00:00", "ns") + np.array([2, 1], "timedelta64[ns]")
    for times in (close, pd.Series(close), [pd.Timestamp(value) for value in close]):
        keys = by_time.python_rows.order.keys({"ts": times})
        assert keys[1] < keys[0]


def test_equal_times_keep_the_order_given(by_time):
    def probability(amounts):
        return by_time.predict([{"ts": ["2024-01-02", "2024-01-01", "2024-01-01"], "amount": amounts}])[0][
            "probability"
        ]

    assert probability([1.0, 2.0, 30.0]) != probability([1.0, 30.0, 2.0])
    table = {"card": [1] * 3, "ts": ["2024-01-02", "2024-01-01", "2024-01-01"], "amount": [1.0, 2.0, 30.0]}
    assert probability([1.0, 2.0, 30.0]) == by_time.predict(pa.table(table)).column("probability")[0].as_py()


def test_a_bad_value_is_an_error_of_its_row(by_time):
    bad = {**ROW, "ts": [*DAYS[:3], "yesterday"]}
    first, second, third = by_time.predict([bad, ROW, {**ROW, "amount": [1.0]}])
    assert first["prediction"] is None and "yesterday" in first["error"]
    assert second["error"] is None
    assert third["error"] == "amount has 1 tokens where ts has 4"


def test_a_column_that_is_no_field_sorts_where_it_is_given(by_number):
    rows = [{"ts": DAYS, "seq": [2, 0, 3, 1], "amount": ROW["amount"]}, reordered(ROW, (1, 3, 0, 2)), ROW]
    given, ascending, backwards = by_number.predict(rows)
    assert given["probability"] == ascending["probability"]
    assert backwards["prediction"] is None and backwards["error"].startswith("when goes back in time; give seq")


def test_large_whole_numbers_are_compared_exactly(by_number):
    far = 2**60
    row = {"ts": DAYS[:2], "amount": [1.0, 9.0]}
    assert by_number.predict([{**row, "seq": [far + 1, far]}]) == by_number.predict([{**row, "seq": [1, 0]}])


def test_a_stream_sorts_what_comes_together_and_refuses_what_comes_late(tmp_path):
    classifier = exported(tmp_path, "seq", {"kind": "category"}, {"bidirectional": False})
    stream = classifier.stream()
    first = stream.read({"a": {"kind": ["k1", "k2"], "seq": [2, 1]}})["a"]
    assert first["probability"] == pytest.approx(
        classifier.predict([{"kind": ["k2", "k1"]}])[0]["probability"], abs=1e-6
    )
    late = stream.read({"a": [{"kind": "k3", "seq": 0}]})["a"]
    assert late["prediction"] is None and late["tokens"] == 2
    late = stream.read({"a": {"kind": ["k3"], "seq": [0]}})["a"]
    assert late["prediction"] is None and late["tokens"] == 2
    assert stream.read({"a": {"kind": ["k3"], "seq": [2]}})["a"]["tokens"] == 3


@pytest.mark.parametrize(
    ("pattern", "zones"),
    [("%d/%b/%Y:%H:%M:%S %z", ("+0900", "-0700", "+0000")), ("%d/%b/%Y:%H:%M:%S %Z", ("Japan", "EST", "UTC"))],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_access_log_is_read_alike_from_a_file_and_in_memory(tmp_path, pattern, zones, kind):
    random = np.random.default_rng(0)
    hours = random.integers(0, 24, 120)
    table = pa.table(
        {
            "client": [f"10.0.0.{client:02}" for client in range(30) for _ in range(4)],
            "at": [f"10/Oct/2000:{hour:02}:55:36 {zones[row % 3]}" for row, hour in enumerate(hours)],
            "status": [f"s{status}" for status in random.integers(0, 5, 120)],
            "label": ["ab"[client % 2] for client in range(30) for _ in range(4)],
        }
    )
    path = tmp_path / f"access.{kind}"
    pq.write_table(table, path) if kind == "parquet" else pa.csv.write_csv(table, path)
    fields = {"at": {"kind": "time", "format": pattern}, "status": "category"}
    keys = {"group_by": "client", "order_by": "at", "order_format": pattern, "fields": fields}
    dataset = prepare(data_options(tmp_path / "cache", train=str(path), **keys))
    assert min(dataset.encoders["at"].gaps_of(dataset.splits["train"].sequences.fields)) >= 0
    write_bundle(make_task(dataset.description()), tmp_path / "bundle", {})
    classifier = Classifier(tmp_path / "bundle", device="cpu", threads=1)
    of_file = classifier.predict(table).column("probability").to_pylist()
    columns = table.select(["at", "status"]).to_pydict()
    rows = [{name: cells[row : row + 4] for name, cells in columns.items()} for row in range(0, 120, 4)]
    assert [row["probability"] for row in classifier.predict(rows)] == pytest.approx(of_file, abs=1e-6)
    (zoneless,) = classifier.predict([{"at": ["10/Oct/2000:01:55:36"], "status": ["s1"]}])
    assert "10/Oct/2000:01:55:36" in zoneless["error"]
